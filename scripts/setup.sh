# Installing what is missing. Sourced by ./dev.

say() { printf '[dev] %s\n' "$*"; }
fail() {
  printf '[dev] %s\n' "$*" >&2
  exit 1
}

packages_of() {  # GROUP: the names of that group in scripts/apt-packages.txt
  sed -n "s/^\([a-z0-9.+-]*\) *\[$1\].*/\1/p" scripts/apt-packages.txt
}

missing_packages() {  # GROUP
  local name
  for name in $(packages_of "$1"); do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || printf '%s ' "$name"
  done
}

setup_packages() {  # GROUP
  mkdir -p .cache/dev
  [ "${HOTLOOP_SKIP_APT:-0}" = 1 ] && return
  command -v dpkg-query >/dev/null ||
    fail "Debian packages are installed on Debian only. Elsewhere install what scripts/apt-packages.txt lists, then set" \
      "HOTLOOP_SKIP_APT=1."
  local missing
  missing=$(missing_packages "$1")
  [ -z "$missing" ] && return
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "these Debian packages are missing, and installing needs root or sudo: $missing"
    as_root=(sudo)
  fi
  say "missing Debian packages:"
  fold -s -w 70 <<<"$missing" | sed 's/^/[dev]   /; s/ *$//'
  say "downloading the package lists first, about 10 MB"
  "${as_root[@]}" apt-get update -q >.cache/dev/apt.log 2>&1 || apt_failed
  # --assume-no stops after the sizes were printed, with status 1.
  # shellcheck disable=SC2086
  { "${as_root[@]}" env LC_ALL=C apt-get install --no-install-recommends --assume-no $missing 2>&1 || true; } |
    sed -nE 's/^(Need to get|After this operation,)/[dev] \1/p; s/^([0-9]+ upgraded.*)/[dev] packages: \1/p'
  # shellcheck disable=SC2086
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing >.cache/dev/apt.log 2>&1 || apt_failed
}

apt_failed() {
  tail -n 20 .cache/dev/apt.log >&2
  fail "apt-get failed; its output is in .cache/dev/apt.log"
}

setup_venv() {
  local stamp
  stamp=$(sha256sum <requirements.txt)
  [ "$(cat .venv/hotloop-stamp 2>/dev/null)" = "$stamp" ] && return
  # What each is for: requirements.txt.
  local count megabytes
  read -r count megabytes < <(sed -nE 's/^[A-Za-z0-9_-]+==[^ ]+ *# ([0-9]+) MB.*/\1/p' requirements.txt |
    awk '{ sum += $1 } END { print NR, sum }')
  say "installing $count packages of PyPI into .venv, at most $megabytes MB to download"
  # The system's own python3 if there is one: that is the one python3-venv belongs to.
  local python=/usr/bin/python3
  [ -x "$python" ] || python=python3
  [ -x .venv/bin/pip ] || "$python" -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check --no-deps -r requirements.txt
  printf '%s\n' "$stamp" >.venv/hotloop-stamp
}

setup_data() {
  [ -e data/elecdemand.csv ] || .venv/bin/python scripts/fetch_elecdemand.py
}

setup_all() {
  setup_packages build
  setup_venv
  setup_data
}
