"""The command lines of which the golden files have the output; those after ``@`` at a terminal."""

from zoo.places import CONTROLS, CURSED

MODEL = "--model train_golden:build"
COMMANDS = {
    "list": f"""
@ list run
list run --json
list run --keep latest=1 --keep best=1,monitor=loss,mode=min
list damaged --keep latest=1 --keep pin=1 --json
list run --config keep.yaml
list theirs
list '{CONTROLS}'
list '{CURSED}'
@ list damaged
list mixed
list empty
list nowhere
list run --keep latest
list run --keep latest=0
list run --keep lates=1
list run --keep latest=1 --config keep.yaml
list run --config policy.yaml
list run --config wrong.yaml
list run --keep latest=1 --checkpoint-name other
list
list run run
""",
    "inspect": """
inspect run
@ inspect run
inspect run/ckpt-1 --json
@ inspect run --values
inspect bad/ckpt-1 --values --json
inspect run --keys
inspect run --name re:.*bias
inspect odd/one --name '**' --json
inspect run --name 'model/oen/**'
inspect run --name 'model/[x'
inspect theirs
inspect odd/one --values
inspect odd/one --name '**'
@ inspect values/one
inspect values/one --values
inspect values/one --keys
inspect values/one --name '**/table'
inspect values/one --name 'model/block_*/kernel'
inspect mixed
inspect bad/ckpt-2 --values
inspect bad/ckpt-2 --values --json
inspect bad/ckpt-2 --name '**'
inspect damaged
inspect damaged/ckpt-1
inspect empty
inspect nowhere/ckpt-1
inspect run --values --keys
@ inspect run --html inspected.html
inspect run --graph
inspect run --slice x
inspect run --model x:y
inspect
inspect a b
""",
    "diff": f"""
diff run/ckpt-1 run/ckpt-2
@ diff run/ckpt-1 run/ckpt-2 --values
diff run/ckpt-1 run/ckpt-2 --values --json
diff run/ckpt-1 run/ckpt-1
diff run/ckpt-1 run/ckpt-1 --json
diff run/ckpt-1 run/ckpt-2 --html differs.html
diff run '{CURSED}' --values
diff damaged run
diff run {MODEL} --values
diff bad --model train_golden:wider
diff run --model train_golden:number
diff run
diff a b c
diff run run {MODEL}
""",
    "plan": f"""
plan run {MODEL}
@ plan run {MODEL}
plan run {MODEL} --json
plan run {MODEL} --html plan.html
plan policy.yaml {MODEL}
plan missed.yaml {MODEL}
@ plan run --model train_golden:wider
plan run --model train_golden:wider --write wider.yaml
plan run {MODEL} --write fine.yaml
plan wider.yaml --model train_golden:wider
plan run {MODEL} --expect nowhere/at/all.json
plan run {MODEL} --expect policy.yaml
plan policy.yaml {MODEL} --write more.yaml
plan run
plan {MODEL}
plan run --model train_golden
plan run --model no_such_module:build
plan run --model train_golden:no_such
plan run --model train_golden:number
plan run --model train_golden:nothing
plan nowhere {MODEL}
plan wrong.yaml {MODEL}
""",
    "verify": f"""
verify run
verify run/ckpt-1
verify theirs
verify '{CONTROLS}'
verify damaged
verify bad --json
verify bad --quarantine
verify bad
verify empty
verify nowhere
verify
""",
    "export": f"""
export run run.npz
export run run.npz
export bad more.npz
export run run.safetensors
export values/one x.npz
export values/one x.safetensors
export nowhere x.npz
export run x.npz --policy body.yaml
export run x.npz --policy nowhere.yaml
export run x.npz {MODEL}
export run x.onnx
export run new.weights.h5
export run new.weights.h5 {MODEL}
export odd/one new2.weights.h5 {MODEL}
export run new3.weights.h5 --model train_golden:compiled
export run new4.weights.h5 --model train_golden:number
export run new/k-1 {MODEL}
export run new/k-1 {MODEL}
export run new/l-1 {MODEL} --policy one.yaml
export run new/l-1 {MODEL} --policy body.yaml
export policy.yaml new/m-1 {MODEL}
export run x.npz --json
export run
rewrite run new/n-1
convert run new/n-1
""",
    "check": f"""
check probed {MODEL} --restore probed
check probed {MODEL} --restore run/ckpt-1
check probed {MODEL} --restore run/ckpt-1 --json
check run {MODEL}
check probed
""",
    "policy": """
policy check one.yaml
policy check saving.yaml
policy check policy.yaml --json
policy check wrong.yaml
policy check wrong.yaml --json
policy check unread.yaml
policy check idle.yaml
policy check idle.yaml --json
policy check keep.yaml
policy check nowhere.yaml
policy show one.yaml
policy schema x
policy
policy chek one.yaml
policy suggest run
""",
    "prune": f"""
prune run --keep latest=2
prune run --keep latest=1 --keep best=1,monitor=loss,mode=min --json
@ prune run --keep latest=1
prune run
prune run --keep pin=9
prune run --keep best=1,monitor=los,mode=min
prune run --keep latest=2 --yes
prune run --keep latest=2 --yes
prune run --keep latest=1 --yes --json
prune theirs --keep latest=1
prune damaged --keep latest=1
prune empty --keep latest=1
prune '{CONTROLS}' --keep latest=1
prune run --keep latest=1 --checkpoint_name no
""",
    "report": """
report run
report run
report run --html report-run.html --keep latest=1 --force
report run/ckpt-3
report run run
report empty
report nowhere
report one.yaml
report run --keep latest
report run --json
report
@ doctor run
doctor damaged
doctor nowhere
doctor run --json
doctor a b
""",
    "main": """

inspct run
restore run
--json list run
inspect run --jsn
list run --xyz
list run --keep
inspect --keys run
list --json --keep latest=1 run --keep=pin=1 --checkpoint-name=ckpt --checkpoint_name other
inspect -- run run
inspect --keys -- --json
inspect run -- --json
inspect run --name -x
inspect run --name=-x
diff run/ckpt-1 --json run/ckpt-1
prune run --keep latest=1 --yes=false
prune run --keep latest=1 --noyes
list -json run
list run --js
--help
help
-h
--version
version
list run -h
policy --help
""",
}
