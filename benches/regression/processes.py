"""Commands whose children end with them, whatever ends us."""

import contextlib
import os
import signal
import subprocess


class CommandError(Exception):
    """A command failed; the text says which, and how it ended."""


def run_together(commands, what, *, cwd=None, env=None, timeout=600):
    """Run commands at once and return what each wrote to standard output; CommandError if one fails.

    `what` names each for the error. Every command leads a process group, which is killed when this function is left by
    an error or an interrupt.
    """
    started = []
    try:
        for command in commands:
            started.append(
                subprocess.Popen(
                    [str(part) for part in command],
                    cwd=cwd,
                    env=env,
                    text=True,
                    errors="replace",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        return [_output(process, name, timeout) for process, name in zip(started, what, strict=True)]
    finally:
        for process in started:
            end(process)


def end(process):
    """Kill a process that leads a group, and the group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _output(process, name, timeout):
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        msg = f"{name}: not done after {timeout} s"
        raise CommandError(msg) from None
    if process.returncode:
        tail = "\n".join((err.strip() or out.strip()).splitlines()[-25:])
        msg = f"{name}: exit {process.returncode}\n{tail}"
        raise CommandError(msg)
    return out
