#!/usr/bin/env bash
# Installs what is missing, and nothing when all is there (a fraction of a second).
#   scripts/bootstrap.sh [build] [check] [nvrtc]
# build, check: the Debian packages of scripts/packages-<set>.txt.   nvrtc: the run-time CUDA compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() {
  say "$1"
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

missing_packages() {  # of the sets named
  local set name
  for set in "$@"; do
    while read -r name; do
      case "$name" in '' | '#'*) continue ;; esac
      [[ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" == installed ]] || printf '%s\n' "$name"
    done <"scripts/packages-$set.txt"
  done
}

install_packages() {
  local missing=() as_root=() apt
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    if command -v cmake >/dev/null && command -v ninja >/dev/null && command -v g++ >/dev/null; then
      say "not a Debian-like system: taking the tools and libraries that are there (docs/dependencies.md lists them)"
      return
    fi
    die "this system has no apt-get, and cmake, ninja or g++ is missing" \
      "install them and the libraries of docs/dependencies.md by hand, then run this again"
  fi
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || die "these packages are missing and need root, and there is no sudo:" \
      "${missing[*]}" "as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq)
  "${apt[@]}" update >&2 || say "apt-get update failed; trying with the lists that are there"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
    die "apt-get could not install: ${missing[*]}" "see its messages above"
}

# Where the program looks too: the toolkits, the loader's path, .venv.
find_nvrtc() {
  local candidate
  for candidate in /usr/local/cuda*/lib64/libnvrtc.so.1[23] /opt/cuda*/lib64/libnvrtc.so.1[23] \
    .venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]; do
    if [[ -e "$candidate" ]]; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -m1 -oE '/[^ ]*libnvrtc\.so\.1[23]$'
}

make_venv() {
  python3 -m venv .venv >/dev/null 2>&1 && return 0
  rm -rf .venv
  [[ -z "$(command -v apt-get)" ]] || install_packages python
  python3 -m venv .venv || die "python3 cannot make .venv" "install python3-venv, or a CUDA toolkit, then run this again"
}

install_nvrtc() {
  find_nvrtc >/dev/null && return 0
  say "no CUDA toolkit here: fetching the run-time compiler (NVRTC) from PyPI into .venv"
  command -v python3 >/dev/null || die "python3 is missing" "it is needed to fetch NVRTC; or install a CUDA toolkit"
  [[ -x .venv/bin/pip ]] || make_venv
  .venv/bin/pip install --quiet --disable-pip-version-check --retries 3 -r scripts/requirements-nvrtc.txt >&2 ||
    die "pip could not install NVRTC" "kernels cannot be turned into machine code without it;" \
      "install a CUDA toolkit 12 or 13, or run this again where PyPI can be reached. Building the program works without (make build)."
  find_nvrtc >/dev/null || die "NVRTC was installed into .venv but its library is not where it is looked for"
}

sets=()
nvrtc=no
for argument in "${@:-build}"; do
  case "$argument" in
    build | check) sets+=("$argument") ;;
    nvrtc) nvrtc=yes ;;
    *) die "unknown argument '$argument': expected build, check or nvrtc" ;;
  esac
done
[[ ${#sets[@]} -eq 0 ]] || install_packages "${sets[@]}"
[[ $nvrtc == no ]] || install_nvrtc
