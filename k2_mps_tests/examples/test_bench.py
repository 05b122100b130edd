"""`k2mps bench`: what it measures, shows and refuses."""
import json
import sys

import pytest

from k2_mps_tests.benchmarks import bench


@pytest.fixture
def main(monkeypatch, capsys):
    monkeypatch.setattr(bench, 'SIZES', {'full': [(1, 8, 2), (2, 9, 3)]})

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', [
            'bench', '--repeats', '1', *map(str, arguments)])
        bench.main()
        return capsys.readouterr().out

    return run


def test_bench(main, tmp_path):
    out = main('--output', tmp_path / 'first')
    document = json.loads((tmp_path / 'first' / 'bench.json').read_text())
    rows = document['rows']
    assert {row['place'] for row in rows} == {'cpu', 'mps-host', 'mps-metal'}
    assert len(rows) == 3 * 2 * 4
    assert all(row['seconds'] > 0 for row in rows)
    for kind in ('png', 'svg'):
        assert (tmp_path / 'first' / ('bench.' + kind)).stat().st_size > 1000
    if sys.platform != 'darwin':
        assert document['where']['mps'] == 'emulated'
        assert 'these are no times of a GPU' in out

    out = main('--output', tmp_path / 'second', '--compare',
               tmp_path / 'first' / 'bench.json')
    assert out.count('x)') == len(rows)


def test_another_machine_is_refused(main, tmp_path):
    where = dict(bench.where(), machine='another')
    (tmp_path / 'old.json').write_text(
        json.dumps({'where': where, 'rows': []}))
    with pytest.raises(SystemExit, match='is of another machine'):
        main('--output', tmp_path, '--compare', tmp_path / 'old.json')
    assert not (tmp_path / 'bench.json').exists()


def test_what_changed():
    row = {'operation': 'x', 'size': [1, 2, 3], 'place': 'cpu',
           'seconds': 2e-3}
    head, line = bench.table([row], [dict(row, seconds=5e-3)])
    assert 'cpu' in head and '2.00 ms (2.50x)' in line
    assert '(' not in list(bench.table([row]))[1]


def test_force_is_put_back(monkeypatch):
    monkeypatch.setenv(bench.FORCE, 'metal')
    with bench.forced('host'):
        assert bench.os.environ[bench.FORCE] == 'host'
    assert bench.os.environ[bench.FORCE] == 'metal'
    with bench.forced(None):
        assert bench.FORCE not in bench.os.environ
