"""While a build reads a checkout, no other command changes the checkout."""

import signal

import pytest
from k2mps.stack import checkout

from k2_mps_tests.tooling.stand_in import build, fails, start_slow_build


@pytest.mark.parametrize("command", [["apply"], ["export"], ["fold", "answer-42"]])
def test_a_command_that_changes_the_checkout_is_refused_while_a_build_reads_it(buildable, command):
    process, _ = start_slow_build(buildable)
    assert "a build reads it" in buildable.fails(17, *command)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


def test_a_build_is_refused_while_the_checkout_is_changed(buildable):
    build(buildable)
    with checkout.Checkout(buildable.checkout).exclusive():
        assert "another k2mps changes" in fails(buildable, 17)


def test_two_builds_may_read_one_checkout(buildable):
    build(buildable)
    with checkout.Checkout(buildable.checkout).reading():
        assert "nothing to do" in build(buildable)
