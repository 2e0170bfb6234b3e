#!/usr/bin/env bash
# docs/tour.md, pasted: takes every ```sh block of "A five-minute tour", and the five lines of README.md
# after the first, and types them, character by character, into bash on a terminal, as a reader does. A block
# that is `./howdah up` goes to a first terminal, the others to a second one. The next block is
# typed when the prompt is back. A home of its own keeps the reader's apart.
#
#   tools/debian13/tour.sh           on any machine with curl and psql; HOWDAH_PORT where 8080 is taken
#
# A command must end with 0, apart from those whose output the page shows as an error. At the end
# nothing may be left running. Needs `script` (util-linux).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/howdah-tour.XXXXXX")
chmod 755 "$scratch" # databases run as users of their own
export HOME=$scratch/home HISTFILE='' TERM=xterm NO_COLOR=1
mkdir --mode=755 "$HOME"
# The installation that the README's reader has, whatever this shell is set to.
unset HOWDAH_HOME HD_API HD_KEY HD_PROJECT PGPASSWORD
export HOWDAH_INSTALL=${HOWDAH_INSTALL:-yes}

fail() {
  printf '\ntour: %s\n' "$*" >&2
  exit 1
}

# Terminals by number: a fifo is what is typed, a file is what is seen.
declare -A shell_of
finish() {
  local status=$? number
  [ ! -e "$HOME/.howdah" ] || ./howdah down --databases >/dev/null 2>&1 || true
  for number in "${!shell_of[@]}"; do kill "${shell_of[$number]}" 2>/dev/null || true; done
  if [ $status != 0 ]; then
    for number in "${!shell_of[@]}"; do
      printf '\n-- the end of terminal %s --\n' "$number" >&2
      tail -n 60 "$scratch/seen.$number" >&2
    done
  fi
  rm -rf "$scratch" first.json stopping.json starting.json resizing.json ca.pem
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

# bash appends the exit code of each command to a file when it prompts again.
open_terminal() { # NUMBER
  mkfifo "$scratch/typed.$1"
  : >"$scratch/codes.$1"
  PS1='$ ' PROMPT_COMMAND="echo \$? >>'$scratch/codes.$1'" \
    script --quiet --flush --command 'stty rows 50 cols 200; exec bash --norc --noprofile -i' /dev/null \
    <>"$scratch/typed.$1" >"$scratch/seen.$1" 2>&1 &
  shell_of[$1]=$!
}
prompts() { wc -l <"$scratch/codes.$1"; }

# eventually SECONDS COMMAND…: until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.2
  done
}
has_prompts() { [ "$(prompts "$1")" -ge "$2" ]; }
has_seen() { tail -c "+$((from + 1))" "$scratch/seen.$1" | grep -q -- "$2"; }

# Types a text one character after the other.
type_into() { # NUMBER TEXT
  local at
  for ((at = 0; at < ${#2}; at++)); do printf '%s' "${2:at:1}"; done >>"$scratch/typed.$1"
}

# The blocks of a section, each ended by a NUL: the commands, then a line "----", then the output that
# the page shows below.
blocks() { # FILE HEADING
  awk -v heading="$2" '
    function flush() { if (commands != "") printf "%s----\n%s%c", commands, shown, 0; commands = shown = "" }
    /^##? / && into == "" { inside = ($0 == heading) }
    !inside { next }
    /^```sh$/ { flush(); into = "commands"; next }
    /^```text$/ { into = "shown"; next }
    /^```$/ { into = ""; next }
    into == "commands" { commands = commands $0 "\n" }
    into == "shown" { shown = shown $0 "\n" }
    END { flush() }
  ' "$1"
}

# Only a block whose output the page shows as an error may end a command with another code than 0.
check_codes() { # PROMPTS_BEFORE SHOWN
  ! tail -n "+$(($1 + 1))" "$scratch/codes.2" | grep -qvx 0 || printf '%s' "$2" | grep -Eq '^(psql: error|error: )'
}

servers() {
  local process
  for process in /proc/[0-9]*; do
    if tr '\0' ' ' <"$process/cmdline" | grep -Eq '^([^ ]*\/)?(postgres|pgbouncer|haproxy)[: ]'; then echo "${process#/proc/}"; fi
  done 2>/dev/null | sort
}
servers_before=$(servers)

open_terminal 1
open_terminal 2
eventually 60 has_prompts 1 1 && eventually 60 has_prompts 2 1 || fail 'bash gave no prompt'

mapfile -d '' -t all < <(blocks docs/tour.md '# A five-minute tour')
[ ${#all[@]} -gt 10 ] || fail "docs/tour.md has only ${#all[@]} blocks of commands"
mapfile -d '' -t five < <(blocks README.md '## A database in five lines')
[ ${#five[@]} -gt 0 ] || fail 'README.md has no block of commands'
all=("${all[0]}" "${five[@]}" "${all[@]:1}")
for block in "${all[@]}"; do
  commands=${block%%----*}
  shown=${block#*----}
  printf '\n== %s s\n%s' "$SECONDS" "$commands"
  if [ "$commands" = $'./howdah up\n' ]; then
    from=$(wc -c <"$scratch/seen.1")
    up_from=$from
    type_into 1 "$commands"
    # The first start of a clone installs and builds.
    eventually 900 has_seen 1 'Ctrl-C stops' || fail 'howdah up did not begin to serve'
    tail -c "+$((from + 1))" "$scratch/seen.1"
    command -v curl >/dev/null && command -v psql >/dev/null || fail 'needs curl and psql'
    continue
  fi
  from=$(wc -c <"$scratch/seen.2")
  before=$(prompts 2)
  wanted=$((before + $(printf '%s' "$commands" | wc -l)))
  type_into 2 "$commands"
  case $commands in
    *--follow*)
      eventually 120 has_seen 2 'Ctrl-C ends it' || fail 'events --follow does not say how it ends'
      type_into 2 $'\003'
      ;;
  esac
  eventually 300 has_prompts 2 "$wanted" || fail 'a block of commands did not come to its end'
  tail -c "+$((from + 1))" "$scratch/seen.2"
  case $commands in
    *--follow*) ;; # Ctrl-C is 130
    *'replica-set create'*) check_codes "$before" "$shown" || has_seen 2 'haproxy' || fail 'replica-set create failed' ;;
    *) check_codes "$before" "$shown" || fail 'a command failed' ;;
  esac
  # The output that the page shows, word for word where nothing in it changes from run to run.
  while read -r line; do
    case $line in
      42 | 'STATUS '* | 'SELECT 1' | 'No problems found.' | 'psql: error'*)
        has_seen 2 "${line%%:*}" || fail "not seen: $line"
        ;;
      'error: The control plane'*) has_seen 2 'error: The control plane' || fail "not seen: $line" ;;
    esac
  done <<<"$shown"
done

from=$up_from
eventually 30 has_seen 1 'The control plane has stopped' || fail 'howdah up still runs'
left=$(comm -13 <(echo "$servers_before") <(servers))
[ -z "$left" ] || {
  for pid in $left; do tr '\0' ' ' <"/proc/$pid/cmdline" && echo; done
  fail 'these are still running'
}
printf '\n== done (%s s)\n' "$SECONDS"
