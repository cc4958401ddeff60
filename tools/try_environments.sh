#!/usr/bin/env bash
# Runs tests in the environments a user may have, each in turn; arguments are pytest's.
#   tools/try_environments.sh                       a short selection
#   tools/try_environments.sh tests/test_cli.py     these
# Another interpreter than .venv's: PYTHON=... tools/try_environments.sh
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
[ $# -gt 0 ] || set -- tests/inference/test_loop.py tests/test_cli.py tests/test_selection.py tests/test_processes.py \
  tests/data tests/fits/test_saving.py tests/fits/test_report_page.py tests/kernels/test_libraries.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()

# try NAME COMMAND...: the tests, run by COMMAND.
try() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}
tests=("$python" -m pytest -q -p no:cacheprovider "$@")

try "as it is" "${tests[@]}"
try "SIGINT ignored" env --ignore-signal=INT "${tests[@]}"
try "no HOME" env -u HOME -u XDG_CACHE_HOME "${tests[@]}"
try "a HOME that is not there" env -u XDG_CACHE_HOME HOME="$work/nowhere/home" "${tests[@]}"
try "C locale" env LC_ALL=C LANG=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 "${tests[@]}"
try "another time zone" env TZ=Pacific/Chatham "${tests[@]}"
try "native code switched off" env AVEM_NATIVE=0 "${tests[@]}"
# Nothing on PATH, and no compiled code from earlier runs: neither compiler nor browser.
mkdir "$work/bin" "$work/cache"
try "no compiler, no browser" \
  env -u CXX -u AVEM_BROWSER PATH="$work/bin" XDG_CACHE_HOME="$work/cache" "${tests[@]}"
if [ "$(id -u)" = 0 ]; then
  # A user without a name or a home, who owns a copy of the tree and nothing else.
  mkdir "$work/tree"
  tar -c --exclude=./.venv --exclude=./.git . | tar -x -C "$work/tree"
  chown -R 65534:65534 "$work"
  chmod 755 "$work"
  user=(setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_CACHE_HOME)
  cd "$work/tree"
  if "${user[@]}" "$python" -c "import avem" 2>/dev/null; then
    try "not root" "${user[@]}" HOME=/nonexistent PYTHONPATH="$PWD" "${tests[@]}"
  else
    echo "== not root: not tried, because other users may not run $python"
  fi
fi

if [ ${#failed[@]} -gt 0 ]; then
  printf 'Failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "All environments passed."
