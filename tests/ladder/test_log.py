"""log.py: lines of a log, written and read back."""

from climbs import LOG

from ladder.log import Step, mfu_line, pairs_line, parse_log, read_log, step_line, warmup_of

FIELDS = parse_log(LOG, "baseline").run
MFU = mfu_line(10**9, None, None)
RESULT = 'RESULT {"status": "ok", "peak_bytes": null}'


def test_lines_survive_a_round_trip(tmp_path):
    path = tmp_path / "a.log"
    device = "NVIDIA H100 80GB HBM3"
    lines = [
        pairs_line("run", FIELDS | {"device": device, "data": 'a "b" \\ c\n', "B": 4}),
        "note  downloading",
        step_line(19, 50, loss=6.123456, dt=0.09831, tok_per_s=166657.3, norm=1.5, lr=6e-4),
        pairs_line("effective", {"matmul": "tf32", "autocast": "bfloat16"}),
        MFU,
        RESULT,
    ]
    assert lines[2] == (
        "step   20/50 | loss 6.123456 | dt    98.31 ms | tok/s  166657"
        " | norm 1.5000e+00 | lr 6.0000e-04"
    )
    path.write_text("\n".join(lines))
    log = read_log(path)
    assert log.run == FIELDS | {"device": device, "data": r'a "b" \ c\n'}
    assert log.effective == {"matmul": "tf32", "autocast": "bfloat16"}
    (step,) = log.steps
    assert step == Step(20, 6.123456, 98.31, 166657, {"norm": 1.5, "lr": 6e-4})
    assert log.result == {"status": "ok", "peak_bytes": None} and log.notes == ["downloading"]


def test_warm_up_is_a_third_of_the_steps_at_least_two_and_at_most_ten():
    warmup = {1: 0, 2: 1, 3: 2, 8: 2, 9: 3, 20: 6, 50: 10}
    assert {steps: warmup_of(steps) for steps in warmup} == warmup


def test_facts_of_a_run_are_read_from_its_keys_and_in_old_logs_from_notes():
    for dtype, note, result, facts in (
        ("float32", "saved step=3 file=a.pt", RESULT.replace("}", ', "throttled": 3}'), (1, 3, 1)),
        ("bfloat16", "note  compiling", RESULT, (0, 0, 0)),
        ("", "note  autocast stays off: …", RESULT, (1, 0, 0)),
        ("", "note  saved step_000003.pt", RESULT, (0, 0, 1)),
    ):
        run = pairs_line("run", FIELDS | {"dtype": dtype})
        log = parse_log(f"{run}\n{note}\n{MFU}\n{result}", "a")
        assert (log.autocast_off, log.throttled, log.saved) == facts
