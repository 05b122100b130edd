"""The command line: reads options, calls the library, prints, exits.

Each command imports what it needs when it runs, so that the quick ones are
quick.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import sys
from pathlib import Path

import click

from k2mps import __version__, cli_patches, cli_wheels, completion, errors
from k2mps.session import Session, device_option, jobs_option, json_option, k2_option, torch_option

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


_GROUPS = {
    "look": ("status", "report", "doctor", "lint"),
    "patch k2": ("checkout", "apply", "undo"),
    "change the patches": ("new", "fold", "edit", "rename", "move", "drop", "export", "lock"),
    "follow upstream": ("probe", "rebase", "upstream"),
    "build and run": ("build", "demo", "test", "fuzz", "bench", "kernels", "cuda", "clean"),
    "make wheels": ("wheel", "verify-wheel", "compare-wheels", "index", "sbom"),
    "use it": ("recipes",),
    "other": ("docs", "completion"),
}


class _Grouped(click.Group):
    """Lists the commands by what they are for."""

    def format_commands(self, context, formatter) -> None:
        listed = {name for names in _GROUPS.values() for name in names}
        rest = [name for name in self.commands if name not in listed]
        width = max(map(len, self.commands))
        for title, names in _GROUPS.items():
            names = [*names, *rest] if title == "other" else names
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(70))
                for name in names
                if name in self.commands
            ]
            with formatter.section(title.capitalize()):
                formatter.write_dl(rows)


@click.group(
    cls=_Grouped,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.option("-v", "--verbose", is_flag=True, help="echo every command")
@click.version_option(__version__, message="k2mps %(version)s")
@click.pass_context
def main(context: click.Context, verbose: bool) -> None:
    """k2 with an Apple MPS backend: patch it, build it, test it.

    Without a command: how things stand, and what to do next.
    """
    context.obj = Session(verbose)
    if context.invoked_subcommand is None:
        _overview(context.obj)


def _overview(session: Session) -> None:
    from k2mps import overview

    k2 = os.environ.get("K2") or None
    directory = session.locate(k2)
    found = session.existing(k2) if directory.is_dir() else None
    look = overview.look(session.project, session.upstream, directory, found)
    for line in overview.lines(look):
        session.console.info(line)


@main.command("checkout")
@k2_option
@click.pass_obj
def checkout_command(session: Session, k2: str | None) -> None:
    """Clone the pinned k2, or verify the checkout that --k2 names."""
    found = session.obtain(k2)
    pin = session.upstream.pin
    session.console.info(f"{found.directory} has k2 {pin.version}, {pin.commit}")


@main.command("apply")
@k2_option
@click.pass_obj
def apply_command(session: Session, k2: str | None) -> None:
    """Apply the patch series to the checkout, all or nothing."""
    from k2mps import apply

    found = session.obtain(k2)
    result = apply.apply(session.project, session.upstream, found)
    if not result.moved:
        session.console.info(f"{found.directory}: already applied")
        return
    session.console.info(
        f"{found.directory}: applied {len(session.upstream.lock.patches)}"
        f" patches, changed {len(result.written)} files; branch k2-mps at"
        f" {result.tip[:12]}"
    )


@main.command("status")
@k2_option
@json_option
@click.pass_obj
def status_command(session: Session, k2: str | None, as_json: bool) -> None:
    """Tell what state the checkout and the patches are in."""
    from k2mps import status

    directory = session.locate(k2)
    found = session.existing(k2) if directory.is_dir() else None
    result = status.of_checkout(session.project, session.upstream, found)
    show = session.console.info
    if as_json:
        facts = {"checkout": str(directory), **result.as_dict()}
        show(json.dumps(facts, indent=2))
        return
    show(f"checkout: {result.state.value} ({directory})")
    for line in (*result.details, *result.user_commits):
        show(f"  {line}")
    untracked = result.untracked_files
    if untracked:
        more = f" and {len(untracked) - 3} more" if untracked[3:] else ""
        show(
            f"  not tracked by git: {', '.join(untracked[:3])}{more}; k2mps"
            " new and fold take what is named"
        )
    if result.rebase:
        show(f"  {result.rebase}")
    show(f"patches: {'changed' if result.patch_changes else 'as locked'}")
    for line in result.patch_changes:
        show(f"  {line}")
    if result.next_command:
        show(f"next: {result.next_command}")


@main.command("export")
@k2_option
@click.option(
    "--prune", is_flag=True, help="delete patches and new files that the branch has no longer"
)
@click.option("--overwrite", is_flag=True, help="write over edits of patches/ that are not locked")
@click.pass_obj
def export_command(session: Session, k2: str | None, prune: bool, overwrite: bool) -> None:
    """Make patches/ from the commits on branch k2-mps, and lock it."""
    from k2mps import export

    result = export.export(session.project, session.existing(k2), prune=prune, overwrite=overwrite)
    show = session.console.info
    for path in result.written:
        show(f"wrote {path}")
    for path in result.removed:
        show(f"removed {path}")
    if not result.written and not result.removed:
        show("patches/ has it all already")
    show(f"{len(result.patches)} patches, tree {result.tree[:12]}")


@main.command("lock")
@k2_option
@click.pass_obj
def lock_command(session: Session, k2: str | None) -> None:
    """Lock patches/ as it is, also after a merge: write its hashes."""
    from k2mps import export, upstream

    session.tidy()
    # A conflict in the lock is what this mends.
    session.upstream = upstream.load(session.project.config_file, False)
    locked = export.lock(session.project, session.obtain(k2))
    session.console.info(
        f"{locked.patches} patches, tree {locked.tree[:12]}"
        + ("; upstream.toml written" if locked.written else ", as before")
    )


@main.command("build")
@k2_option
@torch_option
@jobs_option
@device_option
@click.option("--demo/--no-demo", default=True, help="whether to end with a demonstration")
@click.argument("cmake_arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def build_command(
    session: Session,
    k2: str | None,
    torch: str | None,
    jobs: int | None,
    device: str,
    demo: bool,
    cmake_arguments: tuple[str, ...],
) -> None:
    """Build k2's Python module; after `--`, arguments for cmake."""
    from k2mps import build
    from k2mps.doctor import Device

    built = session.build(k2, build.Request(Device(device), torch, jobs, cmake_arguments))
    build.register(session.project, built)
    session.console.info(f"built {built.directory.name}: {built.done}")
    if demo:
        build.demonstrate(session.project, session.console)
        session.console.info("next: make test, or train something: examples/README.md")


@main.command("demo")
@click.pass_obj
def demo_command(session: Session) -> None:
    """Run the demonstration on the build that `k2mps build` made last."""
    from k2mps import build

    build.demonstrate(session.project, session.console)


@main.command("doctor")
@device_option
@torch_option
@json_option
@click.pass_obj
def doctor_command(session: Session, device: str, torch: str | None, as_json: bool) -> None:
    """Tell what a build needs, what is found, and how to get the rest."""
    from k2mps import doctor

    checks = doctor.examine(
        session.project, session.upstream, doctor.Device(device), torch, session.console
    )
    if as_json:
        facts = [dataclasses.asdict(check) for check in checks]
        session.console.info(json.dumps(facts, indent=2))
    else:
        session.console.table(
            ("", "what", "found", "wanted", "how to get it"),
            [
                (
                    check.verdict,
                    check.name,
                    check.found or "nothing",
                    check.wanted,
                    "" if check.ok else check.fix,
                )
                for check in checks
            ],
        )
    lacking = [check for check in checks if check.needed and not check.ok]
    if lacking:
        raise errors.RequirementMissingError(
            f"a build for {device} needs " + ", ".join(check.name for check in lacking),
            next_command="; ".join(check.fix for check in lacking),
        )


@main.command("test")
@k2_option
@torch_option
@jobs_option
@click.option("--list", "only_list", is_flag=True, help="list the suites")
@click.argument(
    "words", metavar="[SUITE]... [-- PYTEST_ARGUMENTS]", nargs=-1, shell_complete=completion.suites
)
@click.pass_obj
def test_command(
    session: Session,
    k2: str | None,
    torch: str | None,
    jobs: int | None,
    only_list: bool,
    words: tuple[str, ...],
) -> None:
    """Build what the suites need and run them; default all suites.

    What follows `--` goes to pytest.
    """
    from k2mps import suites, testing

    # click drops the "--" itself; pytest's part begins with its first option.
    names = tuple(itertools.takewhile(lambda word: not word.startswith("-"), words))
    if only_list:
        for entry in suites.choose(names):
            session.console.info(f"{entry.name}\t{entry.covers}")
        return
    results = testing.run_all(
        session.project,
        session.upstream,
        k2,
        names,
        torch=torch,
        jobs=jobs,
        arguments=words[len(names) :],
        reporter=session.console,
    )
    testing.report(results, session.console)


@main.command("fuzz")
@k2_option
@torch_option
@jobs_option
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=60, show_default=True, help="for how long"
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="the same seed makes the same cases"
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="only cases of this kind; may be given several times",
)
@click.pass_obj
def fuzz_command(
    session: Session,
    k2: str | None,
    torch: str | None,
    jobs: int | None,
    seconds: float,
    seed: int,
    kinds: tuple[str, ...],
) -> None:
    """Compare mps with the CPU on random FSAs, ragged tensors and losses.

    A case that differs is shrunk and printed as a program that shows it.
    """
    from k2mps import build, fuzz

    built = session.build(k2, build.Request(torch=torch, jobs=jobs))
    fuzz.run(session.project, built, seconds, seed, kinds, session.console)


@main.command("bench")
@k2_option
@torch_option
@jobs_option
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="for table, plot and JSON; default build/bench",
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="a bench.json of an earlier run on this machine",
)
@click.option("--quick", is_flag=True, help="two small sizes only")
@click.pass_obj
def bench_command(
    session: Session,
    k2: str | None,
    torch: str | None,
    jobs: int | None,
    output: Path | None,
    compare: Path | None,
    quick: bool,
) -> None:
    """Time operations on the CPU and on mps, by host and by Metal kernels.

    On Linux mps is emulated: such times tell nothing of a GPU.
    """
    from k2mps import bench, build

    built = session.build(k2, build.Request(torch=torch, jobs=jobs))
    folder = bench.run(session.project, built, output, compare, quick, session.console)
    session.console.info(f"wrote bench.json, bench.png, bench.svg in {folder}")


@main.command("recipes")
@click.argument("kind", metavar="icefall", type=click.Choice(("icefall",)))
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--undo", is_flag=True, help="give the checkout back as it was")
@click.pass_obj
def recipes_command(session: Session, kind: str, directory: Path, undo: bool) -> None:
    """Make a checkout of icefall ready for mps, or take that back.

    Its calls for CUDA's device, mixed precision and memory are rewritten to
    k2.mps.gpu, which also serves CUDA. docs/icefall.md tells the rest.
    """
    from k2mps.recipes import Recipes

    recipes = Recipes(directory, session.console)
    show = session.console.info
    if undo:
        result = recipes.undo()
        show(f"{directory}: {len(result.changed)} files are as they were")
        for path in result.merged:
            show(f"  with your edits: {path}")
        return
    result = recipes.apply()
    show(f"{directory}: rewrote {len(result.changed)} files")
    for path, reason in result.left.items():
        session.console.warn(f"{path} stays as it is: {reason}")
    show(f"git -C {directory} diff shows them; k2mps recipes icefall {directory} --undo")


@main.command("cuda")
@k2_option
@click.option(
    "--prepare",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="the folder to make",
)
@click.option(
    "--moderngpu",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="a checkout of github.com/moderngpu/moderngpu",
)
@click.pass_obj
def cuda_command(session: Session, k2: str | None, folder: Path, moderngpu: Path) -> None:
    """Make a folder that checks the series on a machine with CUDA.

    Its run.sh builds k2 there with and without the series, runs k2's own
    tests, and compares times.  The folder is all that the machine needs,
    besides CUDA's compiler, torch, pybind11, cmake, ninja and pytest.
    """
    from k2mps import cuda

    cuda.prepare(session.project, session.upstream, session.obtain(k2), moderngpu, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    session.console.info(f"made {folder}, {size / 1e6:.1f} MB")
    session.console.info(f"next, on a machine with CUDA: {folder}/run.sh")


@main.command("kernels")
@click.option(
    "--device",
    type=click.Choice(("cpu", "cuda")),
    default="cpu",
    show_default=True,
    help="cpu: on mps, which the CPU emulates on Linux; cuda: on an NVIDIA GPU",
)
@click.option(
    "--prepare",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="only make a folder whose run.py checks on another machine's GPU",
)
@click.option(
    "--run",
    "run_folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="run such a folder",
)
@click.option(
    "--libdevice",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CUDA's libdevice.10.bc; default: the installed toolkit's",
)
@click.option("--gpu", metavar="ARCHITECTURE", help="the oldest GPU that PTX is for; default sm_80")
@click.pass_obj
def kernels_command(
    session: Session,
    device: str,
    prepare: Path | None,
    run_folder: Path | None,
    libdevice: Path | None,
    gpu: str | None,
) -> None:
    """Check each Metal kernel by itself against a reference in float64."""
    from k2mps import kernels

    if prepare is not None and run_folder is not None:
        raise click.UsageError("--prepare and --run are two steps")
    kernels.check(
        session.project,
        session.upstream,
        device,
        prepare,
        run_folder,
        libdevice,
        gpu,
        session.console,
    )


@main.command("docs")
@click.pass_obj
def docs_command(session: Session) -> None:
    """Write the tables of docs/ anew, and build the site."""
    from k2mps import docs

    for page in docs.write(session.project):
        session.console.info(f"wrote {page}")
    site = docs.build(session.project, session.console)
    session.console.info(f"built {site / 'index.html'}")


@main.command("completion")
@click.argument("shell", type=click.Choice(completion.SHELLS))
@click.pass_obj
def completion_command(session: Session, shell: str) -> None:
    """Print what makes SHELL complete k2mps's commands and their words.

    \b
    bash:  eval "$(k2mps completion bash)"                in ~/.bashrc
    zsh:   eval "$(k2mps completion zsh)"                 in ~/.zshrc
    fish:  k2mps completion fish > ~/.config/fish/completions/k2mps.fish
    """
    session.console.info(completion.script(main, shell))


@main.command("clean")
@click.option(
    "--all", "everything", is_flag=True, help="the clones of k2 as well, unless they hold work"
)
@click.pass_obj
def clean_command(session: Session, everything: bool) -> None:
    """Delete the build trees."""
    from k2mps import clean

    pin = session.upstream.pin
    for path in clean.clean(session.project, pin, everything):
        session.console.info(f"deleted {path}")


for _command in (*cli_patches.COMMANDS, *cli_wheels.COMMANDS):
    main.add_command(_command)


def run() -> None:
    """Entry point of the console script."""
    from k2mps import git, interrupts

    interrupts.install()
    git.scrub_environment()
    try:
        sys.exit(_run())
    except errors.K2mpsError as error:
        failure = error
    except OSError as error:
        failure = _as_error(error)
    first, *rest = str(failure).split("\n")
    lines = [f"error: {first}", *(f"  {line}" for line in rest)]
    print("\n".join(lines), file=sys.stderr, flush=True)
    sys.exit(failure.exit_code)


def _run() -> int:
    try:
        return main(prog_name="k2mps", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _as_error(error: OSError) -> errors.K2mpsError:
    """An operating system's error as one of ours."""
    what = error.strerror or str(error)
    if error.filename:
        what += f": {error.filename}"
    if error.errno in _NO_SPACE:
        return errors.DiskFullError(
            what, next_command="free some space, then run the same command again"
        )
    return errors.FileAccessError(
        what,
        next_command="see to it that it can be read and written, then run the same command again",
    )
