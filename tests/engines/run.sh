#!/usr/bin/env bash
# The shards of a plan under engines that people have: GNU parallel, Open MPI, a Slurm array (a controller and a node of its own, as
# root), and by the command that docs/scale.md gives Kubernetes. One of the workers is killed and its shard decoded again. Engines that
# are not installed are left out; 77: none is.
#   run.sh ASOF DATA
set -euo pipefail
asof=$1 data=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/asof-engines-XXXXXX")
daemons=()
cleanup() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
n=6
capture=$data/demo/perf.data
"$asof" plan -q -o "$work/plan" --symfs "$data/demo/symfs" "$capture"
want=$("$asof" digest -q --symfs "$data/demo/symfs" "$capture")
ran=0

check() { # engine, shards: its parts are the whole
  local engine=$1 shards=${2:-$n} got
  "$asof" merge -q --strict "$work/plan" "$work/$engine" -o "$work/$engine.blocks"
  got=$("$asof" digest -q "$work/$engine.blocks")
  [ "$got" = "$want" ] || { printf '%s: the digest differs\n%s\n%s\n' "$engine" "$want" "$got" >&2; exit 1; }
  [ "$ran" = 0 ] || [ "$shards" != "$n" ] || cmp "$work/$engine.blocks" "$work/first.blocks"
  [ "$ran" != 0 ] || cp "$work/$engine.blocks" "$work/first.blocks"
  ran=$((ran + 1))
  echo "$engine: $shards shards are the whole"
}

by_hand() { # a worker that is killed leaves no part
  local k pid
  for ((k = n; k-- > 0;)); do
    "$asof" decode -q --plan "$work/plan" --shard "$k/$n" -o "$work/hand" &
    pid=$!
    [ $((k % 2)) = 0 ] || kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
  done
  for ((k = 1; k < n; k += 2)); do "$asof" decode -q --plan "$work/plan" --shard "$k/$n" -o "$work/hand"; done
  check hand
}

by_range() { # a worker of all shards is killed after its first part, and run again
  local pid
  "$asof" decode -q --plan "$work/plan" --shard "0-$((n - 1))/$n" -o "$work/range" &
  pid=$!
  until compgen -G "$work/range/*.blocks" >/dev/null; do kill -0 $pid 2>/dev/null || break; done
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  "$asof" decode -q --plan "$work/plan" --shard "0-$((n - 1))/$n" -o "$work/range"
  check range
}

by_parallel() {
  seq 0 $((n - 1)) | shuf | parallel --will-cite -j 2 "$asof" decode -q --plan "$work/plan" --shard "{}/$n" -o "$work/parallel"
  check parallel
}

by_mpi() {
  local root=()
  [ "$(id -u)" != 0 ] || root=(--allow-run-as-root)
  # shellcheck disable=SC2016 # each process expands its own
  OMPI_MCA_plm_rsh_agent=/bin/false OMPI_MCA_btl=self,vader mpirun "${root[@]}" --oversubscribe -n $n sh -c \
    'exec "$0" decode -q --plan "$1/plan" --shard "$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE" -o "$1/mpi"' "$asof" "$work"
  check mpi
}

wait_for() { # until a command succeeds, as long as the daemons live
  local pid
  until "$@" >/dev/null 2>&1; do
    for pid in "${daemons[@]}"; do kill -0 "$pid" 2>/dev/null || { echo "a daemon of Slurm ended" >&2; return 1; }; done
    sleep 0.2
  done
}

start_slurm() {
  local etc=$work/slurm host port
  host=$(hostname -s)
  port=$((20000 + RANDOM % 20000))
  mkdir -p "$etc/state" "$etc/spool"
  chmod 755 "$work" "$etc"
  (umask 077 && head -c 1024 /dev/urandom >"$etc/munge.key")
  cat >"$etc/slurm.conf" <<CONF
ClusterName=asof
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$etc/munge.socket
CryptoType=crypto/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$etc/state
SlurmdSpoolDir=$etc/spool
SlurmctldPidFile=$etc/ctld.pid
SlurmdPidFile=$etc/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
CONF
  export SLURM_CONF=$etc/slurm.conf
  munged --force --foreground --key-file "$etc/munge.key" --socket "$etc/munge.socket" --pid-file "$etc/munge.pid" \
    --log-file "$etc/munge.log" --seed-file "$etc/munge.seed" --num-threads 2 >/dev/null 2>&1 &
  daemons+=($!)
  wait_for test -S "$etc/munge.socket"
  slurmctld -D -f "$SLURM_CONF" >"$etc/ctld.log" 2>&1 &
  daemons+=($!)
  slurmd -D -f "$SLURM_CONF" >"$etc/d.log" 2>&1 &
  daemons+=($!)
  wait_for sh -c "sinfo -h -o %t | grep -q idle"
}

by_slurm() {
  local job
  start_slurm
  cat >"$work/job.sh" <<JOB
#!/bin/sh
exec "$asof" decode -q --plan "$work/plan" --shard "\$SLURM_ARRAY_TASK_ID/$n" -o "$work/slurm-parts"
JOB
  job=$(sbatch --parsable --array=0-$((n - 1)) --requeue --output="$work/slurm/job-%a.log" "$work/job.sh")
  # A task that is put back is run again.
  scontrol requeue "${job}_3" >/dev/null 2>&1 || true
  wait_for sh -c "[ -z \"\$(squeue -h -j $job 2>/dev/null)\" ]"
  check slurm-parts
}

# What docs/scale.md has a container of an Indexed Job of Kubernetes run, for each index. A cluster is not needed.
by_manifest() {
  local manifest command completions k
  manifest=$(dirname "$0")/../../docs/scale.md
  command=$(sed -n "s/^ *command: \[sh, -c, '\(.*\)'\]\$/\1/p" "$manifest")
  completions=$(sed -n 's/^ *completions: //p' "$manifest")
  if [ -z "$command" ] || [ -z "$completions" ]; then echo "no Job in $manifest" >&2; exit 1; fi
  for ((k = 0; k < completions; ++k)); do
    JOB_COMPLETION_INDEX=$k PATH=$(dirname "$asof"):$PATH sh -c "${command//\/data/$work}"
  done
  check parts "$completions"
}

by_hand
by_range
by_manifest
# Others have programs of these names.
if parallel --version 2>/dev/null | grep -q GNU; then by_parallel; fi
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then by_mpi; fi
if command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null && [ "$(id -u)" = 0 ]; then by_slurm; fi
[ $ran -gt 3 ] || { echo "none of GNU parallel, Open MPI, Slurm is installed"; exit 77; }
