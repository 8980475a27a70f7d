"""The command as a process: where it is stopped, it ends without a traceback."""

import subprocess
import sys

import pytest

STOPS = {
    "in a command": "import longcrawl as lc\ndef stop(*_, **__): raise KeyboardInterrupt\nlc.card = stop\n",
    "at an import": "class Stop:\n def find_spec(self, name, *_):\n  if name == 'longcrawl.cli.make': "
    "raise KeyboardInterrupt\n"
    "sys.meta_path.insert(0, Stop())\n",
}


@pytest.mark.parametrize("stop", STOPS)
def test_stopping_a_command_leaves_no_traceback(tmp_path, stop):
    code = (
        f"import sys\n{STOPS[stop]}sys.argv = ['longcrawl', 'card', 'x']\nfrom longcrawl.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
