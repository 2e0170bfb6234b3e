# Read by other scripts with `.`

# The first mirror of Debian that this machine's apt uses; nothing if it uses none.
mirror_of_this_machine() {
  sed -nE 's/^(URIs:|deb( \[[^]]*\])?) +(https?:[^ ]*\/debian)\/?( .*)?$/\3/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1
}
