# Makes .venv and installs judge-local into it; sourced by scripts/quickstart and scripts/test.
#
# * Everything a person needs to install by hand (Python, its venv module, a C++ compiler) is looked for before pip
#   starts, and what is missing is named with the command that installs it.
# * Compiling llama.cpp takes minutes: one line says how long it has taken and where it is; the rest goes to a log.
# * A stamp remembers what was installed, so that the next run starts in seconds.
# * Works with the bash 3.2 of macOS, with `set -eu`.

readonly VENV=.venv
readonly LOG=$VENV/install.log
readonly STAMP=$VENV/judge-local-installed

say() { printf '==> %s\n' "$*" >&2; }

die() { # WHAT: one line that says what is wrong and what to do
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 2
}

python_version() { # PYTHON: prints "3.11"; fails if it does not run
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

new_enough() { # VERSION
  [ "${1%%.*}" -gt 3 ] || { [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -ge 11 ]; }
}

find_python() { # sets PYTHON to the first Python that is new enough
  local candidate version found="" candidates=(python3 python3.14 python3.13 python3.12 python3.11 python)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    version=$(python_version "$candidate") || continue
    if new_enough "$version"; then
      PYTHON=$candidate
      return
    fi
    found="${found:+$found, }$candidate is $version"
  done
  die "Python 3.11 or newer is needed (${found:-none found}). Install one (Debian, Ubuntu: sudo apt install python3" \
    "python3-venv; Fedora: sudo dnf install python3; macOS: brew install python), or name one: PYTHON=/path/to/python3 $0"
}

need_venv_module() {
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$PYTHON cannot make virtual environments. Install its venv module (Debian, Ubuntu: sudo apt install python3-venv)."
}

need_compiler() { # llama.cpp is compiled during the install
  local compiler object works="" compilers=(c++ g++ clang++)
  [ -z "${CXX:-}" ] || compilers=("$CXX")
  object=$(mktemp "${TMPDIR:-/tmp}/judge-local.XXXXXX")
  for compiler in "${compilers[@]}"; do
    # A trial, because macOS has a c++ that only says that no compiler is installed. CXX may be several words.
    # shellcheck disable=SC2086
    if $compiler -std=c++17 -x c++ -c -o "$object" - <<<$'#include <thread>\nint main() { return 0; }' >/dev/null 2>&1; then
      works=yes
      break
    fi
  done
  rm -f "$object"
  [ -n "$works" ] ||
    die "no working C++ compiler (tried ${compilers[*]}), and llama.cpp is compiled during the install. Install one" \
      "(Debian, Ubuntu: sudo apt install g++; Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install), then run $0 again."
}

phase() { # LOG: where the install is, from the end of its log
  tail -n 400 "$1" | tr '\r' '\n' | sed -n -E \
    -e 's/^ *\[([0-9]+)\/([0-9]+)\].*/compiling llama.cpp, step \1 of \2/p' \
    -e 's/^ *\[ *([0-9]+)%\].*/compiling llama.cpp, \1 %/p' \
    -e 's/^ *(Building wheel for [^ ]+).*/\1/p' \
    -e 's/^ *Collecting ([A-Za-z0-9._-]+).*/looking for \1/p' \
    -e 's/^ *Downloading ([^ ]*\/)?([^ ]+).*/downloading \2/p' \
    -e 's/^ *Installing collected packages.*/installing/p' | tail -n 1
}

elapsed() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); } # SECONDS

with_progress() { # LOG COMMAND...: COMMAND's output goes to LOG; its status is returned
  local log=$1 started=$SECONDS said=0 took pid status=0
  shift
  # In a process group of its own, so that an interrupt also ends what it started.
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  set +m
  trap 'kill -TERM -- "-$pid" 2>/dev/null; exit 130' INT
  trap 'kill -TERM -- "-$pid" 2>/dev/null; exit 143' TERM
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    took=$((SECONDS - started))
    if [ -t 2 ]; then
      printf '\r\033[K    %s  %.60s' "$(elapsed $took)" "$(phase "$log")" >&2
    elif [ $((took - said)) -ge 15 ]; then
      printf '    %s  %.60s\n' "$(elapsed $took)" "$(phase "$log")" >&2
      said=$took
    fi
  done
  wait "$pid" || status=$?
  trap - INT TERM
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
  return "$status"
}

stamp() { # EXTRAS: what an install depends on; an editable install also on where it is
  printf '%s|%s|%s|%s\n' "$(cksum <pyproject.toml)" "$("$VENV/bin/python" -V 2>&1)" "$PWD" "$1"
}

installed() { # EXTRAS: whether they are in .venv already; the test extras include everything
  [ -f "$STAMP" ] && { [ "$(cat "$STAMP")" = "$(stamp "$1")" ] || [ "$(cat "$STAMP")" = "$(stamp test)" ]; }
}

explain_failure() { # LOG
  say "The install failed. The end of $PWD/$1:"
  tail -n 25 "$1" | sed 's/^/    /' >&2
  if grep -qiE 'killed signal|internal compiler error: killed|cannot allocate memory' "$1"; then
    die "the compiler ran out of memory. Run it on one core: CMAKE_BUILD_PARALLEL_LEVEL=1 $0"
  elif grep -qiE 'name resolution|failed to establish a new connection|newconnectionerror|network is unreachable' "$1"; then
    die "pip cannot reach its package index. Check the network, or the index and proxy in pip's configuration (pip config list)."
  fi
  die "pip could not install judge-local. The whole log is $PWD/$1."
}

make_venv() { # EXTRAS: "" or "test"
  case $(uname -s) in
    Linux | Darwin) ;;
    *) die "judge-local runs on Linux and macOS; on Windows, use WSL." ;;
  esac
  if installed "$1"; then
    return
  fi
  if ! "$VENV/bin/python" -c '' 2>/dev/null; then
    find_python
    need_venv_module
    need_compiler
    say "Making $VENV with $PYTHON ($(python_version "$PYTHON"))"
    "$PYTHON" -m venv --clear "$VENV"
  elif ! new_enough "$(python_version "$VENV/bin/python")"; then
    die "$VENV has Python $(python_version "$VENV/bin/python"), and 3.11 or newer is needed. Remove it (rm -r $VENV), then run $0 again."
  fi
  if ! "$VENV/bin/python" -c 'import importlib.metadata as m; m.version("llama-cpp-python")' 2>/dev/null; then
    need_compiler
    say "Installing. llama.cpp is compiled here, once: about 5 minutes on 2 cores. Log: $LOG"
  else
    say "Installing what pyproject.toml asks for. Log: $LOG"
  fi
  rm -f "$STAMP"
  with_progress "$LOG" "$VENV/bin/python" -m pip install -v --no-input --disable-pip-version-check -e ".${1:+[$1]}" ||
    explain_failure "$LOG"
  stamp "$1" >"$STAMP"
  say "Installed in $(elapsed $SECONDS)"
}
