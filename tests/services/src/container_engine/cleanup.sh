# Ends an engine and its containers, and removes its folder, once the standard input ends: when the tests end, however they do.
# Usage: cleanup.sh FOLDER CLIENT...
folder=$1
shift
read -r _
all=$("$@" ps --all --quiet 2>/dev/null)
[ -z "$all" ] || "$@" rm --force $all >/dev/null 2>&1
for file in "$folder"/service.pid "$folder"/exec/containerd/containerd.pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  # One that has ended leaves its number to any other process.
  grep -q "$folder" "/proc/$pid/cmdline" 2>/dev/null || continue
  kill "$pid" 2>/dev/null
  for _ in $(seq 200); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
done
sed -n "s|^[^ ]* \($folder/[^ ]*\) .*|\1|p" /proc/mounts | sort -r | while read -r mount; do umount -l "$mount"; done
rm -rf "$folder"
