#!/bin/sh
# Healthy: the process that wrote the ready file is there, and neither stopped nor dead.
# A shell and /proc, because a Python interpreter for each check of each container adds up. It does not ask Redis:
# roles outlast a restart of Redis, and checks that fail everywhere at once would only hide which one is broken.
ready=${1:-/run/fairlane/ready}

pid=$(sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' "$ready") || exit 1
[ -n "$pid" ] || { echo "no pid in $ready"; exit 1; }
state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status") || exit 1
case $state in
R | S | D) exit 0 ;;
*) echo "process $pid is in state $state"; exit 1 ;;
esac
