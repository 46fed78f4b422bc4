#!/bin/sh
# Measures a GPU in some seconds, a share of them for each step, and packs what came out; gpu-first.md says what it is for.
#
#   sh profiling/gpu-first.sh OUT SECONDS [GPU [DEVICE]]
#
# Run it from the root of the repository. Repeated with the same OUT, it goes on where it was. No clock is changed.
set -u
out=$1 seconds=$2 gpu=${3:-H100 SXM} device=${4:-cuda}
end=$(($(date +%s) + seconds))
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$out"

step() { # NAME, percent of all seconds, command: stopped like Ctrl-C when its time is over, so that it writes what it has
    name=$1 most=$((seconds * $2 / 100)) began=$(date +%s)
    shift 2
    left=$((end - began))
    [ "$most" -gt "$left" ] && most=$left
    [ "$most" -lt 5 ] && echo "== $name: no time is left" && return
    echo "== $name: $most s at most"
    timeout --kill-after=15 "$most" "$@" >"$out/$name.txt" 2>&1
    code=$?
    echo "== $name: $(($(date +%s) - began)) s, exit code $code; $(tail -n 1 "$out/$name.txt" | tr '\r' '\n' | tail -n 1)"
}

collect() { # NAME, percent, options: the times of a list, or networks with power
    name=$1 share=$2
    shift 2
    step "$name" "$share" python3 -m joulecast.profiling "$@" --out "$out/$name" --device "$device" --resume
}

step facts 3 sh -c 'nvidia-smi -q; python3 -m pip list; uname -a'
step host 4 python3 -m joulecast host --device "$device" --out "$out/host.json"
minutes=$(awk "BEGIN { print $seconds * 0.4 / 60 }")
step calibrate 45 python3 -m joulecast calibrate --minutes "$minutes" --device "$device" --out "$out/mine.json"
collect networks 22 profiling/networks.toml --seconds 1.5 --limit 150 --whole-networks
collect inference 8 profiling/gpu-first.toml --no-power
collect training 8 profiling/gpu-first.toml --network profiling/gpu-first/training.json --mode training --no-power
step account 7 python3 -m joulecast account resnet50 32,3,224,224 --device "$device" --gpu "$gpu"
step measure 5 python3 -m joulecast measure --out "$out/run.jsonl" -- python3 -c "
import torch
x = torch.randn(8192, 8192, device='$device')
[x @ x for _ in range(500 if '$device' != 'cpu' else 1)]
torch.cuda.is_available() and torch.cuda.synchronize()"
# What time is left goes to the lists, whose order is random: what was measured of them is a sample.
collect inference 100 profiling/gpu-first.toml --no-power
tar -czf "$out.tgz" -C "$out" .
ls -l "$out.tgz"
