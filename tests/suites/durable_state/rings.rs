//! Rings that continue from their last checkpoint in earlier runs of the program.

use std::path::PathBuf;

use fiber::ring::RingBuilder;
use fiber::{Array, Error, Process, Queue, Reduction, Ring, RingNode};

use super::programs::{Folder, Programs, Runs, note};

pub(crate) const PROGRAMS: Programs = &[
    ("sum", sum),
    ("three rings", three_rings),
    ("fail at the sixth step", fail_at_the_sixth_step),
    ("other runs", other_runs),
    ("fill the disk with checkpoints", fill_the_disk),
    ("bad rings", bad_rings),
];

const STEPS: u64 = 60;

fn ring(name: &str, folder: &Folder) -> RingBuilder {
    Ring::builder().name(name).size(2).durable(folder.journal())
}

/// Sums in steps, and notes where it begins. Its state contains an array.
fn steps(mut node: RingNode, file: PathBuf) -> fiber::Result<(u64, f64)> {
    let restored = node.restored::<(u64, Array<f64>)>()?;
    let (first, mut state) =
        restored.map_or((0, vec![1.0; 10_000]), |(step, state)| (step, state.to_vec()));
    if node.rank() == 0 {
        note(&file, first);
    }
    for step in first..STEPS {
        let mut joined: Vec<f64> = state.iter().map(|x| (x + node.rank() as f64).recip()).collect();
        node.all_reduce(&mut joined, Reduction::Mean)?;
        state.iter_mut().zip(joined).for_each(|(x, joined)| *x = 0.5 * *x + joined);
        node.checkpoint(&(step + 1, Array::from(state.clone())))?;
        if node.rank() == 0 {
            note(&file.with_extension("steps"), step);
        }
    }
    Ok((STEPS, state.iter().sum()))
}

fn sum(folder: &Folder) {
    let results = ring("sum", folder).try_run(steps, folder.file("starts")).wait().unwrap();
    folder.note("results", format!("{results:?}"));
}

#[test]
fn a_killed_program_continues_its_ring_and_gets_the_same_result() {
    let [undisturbed, killed] = [Runs::of("sum"), Runs::of("sum")];
    undisturbed.succeed();
    // The first kill waits for a recorded checkpoint.
    killed.kill_when(|folder| !folder.recorded().is_empty());
    killed.survive_kills(8, "starts.steps", 12);
    let results = killed.folder().lines("results");
    assert_eq!(results, undisturbed.folder().lines("results"), "with and without kills");
    let starts = killed.folder().numbers("starts");
    assert!(starts.is_sorted(), "a checkpoint was lost: {starts:?}");
    assert!(starts.iter().any(|first| *first > 0), "every run began anew: {starts:?}");
    // The results come from the journal: no rank starts.
    killed.succeed();
    assert_eq!(killed.folder().lines("starts").len(), starts.len());
    assert_eq!(killed.folder().lines("results"), [&results[..], &results[..]].concat());
}

/// Two rings that end well, one of them twice, and a third that fails in the first run.
fn three_rings(folder: &Folder) {
    let work = |node: RingNode, factor: usize, file: PathBuf| {
        note(&file, factor);
        if factor == 3 && !file.with_extension("second-run").exists() {
            panic!("the third one fails");
        }
        factor * node.rank()
    };
    let file = folder.file("calls");
    let run = |name, factor| ring(name, folder).run(work, (factor, file.clone())).wait();
    assert_eq!(run("again", 1).unwrap(), [0, 1]);
    assert_eq!(run("again", 2).unwrap(), [0, 2]);
    let third = run("third", 3);
    std::fs::write(file.with_extension("second-run"), "").unwrap();
    if let Ok(third) = third {
        assert_eq!(third, [0, 3]);
        folder.note("done", "");
    }
}

#[test]
fn a_program_of_several_rings_goes_on_with_the_one_that_is_not_over() {
    let runs = Runs::of("three rings");
    runs.succeed();
    runs.succeed();
    assert_eq!(runs.folder().lines("done").len(), 1);
    let mut calls = runs.folder().lines("calls");
    calls.sort();
    // The panic of one rank may end the other one before its call.
    let thirds = calls.iter().filter(|factor| *factor == "3").count();
    assert!((3..=4).contains(&thirds), "{calls:?}");
    assert_eq!(calls[..4], ["1", "1", "2", "2"], "finished rings don't run again");
}

/// Takes checkpoints, and fails once.
fn fail_at_the_sixth_step(folder: &Folder) {
    fn work(mut node: RingNode, file: PathBuf) -> fiber::Result<u64> {
        let first = node.restored::<u64>()?.unwrap_or(0);
        if node.rank() == 0 {
            note(&file, first);
        }
        for step in first..10 {
            assert!(step != 6 || first > 0, "it fails once");
            node.checkpoint(&(step + 1))?;
            node.barrier()?;
        }
        Ok(first)
    }
    let run = ring("ring", folder).try_run(work, folder.file("starts")).wait();
    match run {
        Ok(first) => folder.note("results", first[0]),
        Err(error) => assert!(matches!(error, Error::Task { .. }), "{error}"),
    }
}

#[test]
fn a_ring_that_has_failed_continues_from_the_last_complete_checkpoint() {
    let runs = Runs::of("fail at the sixth step");
    runs.succeed();
    runs.succeed();
    let starts = runs.folder().lines("starts");
    // The sixth checkpoint may not have been recorded when the function failed.
    assert!(starts == ["0", "5"] || starts == ["0", "6"], "{starts:?}");
    assert_eq!(runs.folder().lines("results"), starts[1..]);
}

/// In its first run, takes a checkpoint and fails. In the second one, runs other rings by the name.
fn other_runs(folder: &Folder) {
    fn work(mut node: RingNode, fails: bool) -> fiber::Result<Option<u64>> {
        let restored = node.restored()?;
        for n in 1..=2_u64 {
            node.checkpoint(&n)?;
            node.barrier()?;
        }
        assert!(!fails || restored.is_some(), "it fails");
        Ok(restored)
    }
    fn other(_: RingNode, _: bool) {}
    // The runs of one program are numbered, so each of these is a program's first run.
    let run = std::fs::read_to_string(folder.file("run")).unwrap_or_default();
    let begin = || ring("ring", folder);
    let refusal = |error: Error| {
        assert!(matches!(error, Error::Invalid { method: "RingBuilder::durable", .. }), "{error}");
        folder.note("refusals", error);
    };
    match run.as_str() {
        "" => drop(begin().try_run(work, true).wait().unwrap_err()),
        "size" => refusal(begin().size(3).try_run(work, true).wait().unwrap_err()),
        "arguments" => refusal(begin().try_run(work, false).wait().unwrap_err()),
        "function" => refusal(begin().run(other, true).wait().unwrap_err()),
        "version" => {
            let anew = begin().durable(folder.journal().version("2"));
            assert_eq!(anew.try_run(work, false).wait().unwrap(), [None, None]);
        }
        "same" => {
            let restored = begin().try_run(work, true).wait().unwrap();
            assert!(restored == [Some(1); 2] || restored == [Some(2); 2], "{restored:?}");
        }
        other => panic!("there is no run `{other}`"),
    }
}

#[test]
fn a_ring_that_differs_from_the_recorded_one_is_refused_until_it_gets_another_version() {
    let runs = Runs::of("other runs");
    for run in ["", "size", "arguments", "function", "version", "same"] {
        std::fs::write(runs.folder().file("run"), run).unwrap();
        runs.succeed();
    }
    let refusals = runs.folder().lines("refusals").join("\n");
    for words in ["of 2 ranks, not of 3", "with other arguments", "not of `", "another version"] {
        assert!(refusals.contains(words), "{words}: {refusals}");
    }
}

/// Takes checkpoints until the disk is full. Then the run ends.
fn fill_the_disk(folder: &Folder) {
    fn work(mut node: RingNode) -> fiber::Result<()> {
        let state = vec![0_u8; 20_000];
        loop {
            node.checkpoint(&state)?;
        }
    }
    let error = ring("ring", folder).try_run(work, ()).wait().unwrap_err();
    assert!(matches!(error, Error::Journal { .. }), "{error}");
}

#[test]
fn a_full_disk_ends_the_ring() {
    assert!(Runs::of("fill the disk with checkpoints").run_on_a_small_disk().success());
}

fn bad_rings(folder: &Folder) {
    let refusal = |error: Error| {
        assert!(matches!(error, Error::Invalid { method: "RingBuilder::durable", .. }), "{error}");
        error.to_string()
    };
    let rank = |node: RingNode| node.rank();
    let nameless = Ring::builder().size(1).durable(folder.journal());
    assert!(refusal(nameless.run(rank, ()).wait().unwrap_err()).contains("needs a name"));
    let queue = Queue::<u32>::new().unwrap();
    let with_queue = |_: RingNode, _: Queue<u32>| ();
    let error = ring("ring", folder).run(with_queue, queue).wait().unwrap_err();
    assert!(refusal(error).contains("contain a handle"));
    let elsewhere = |file: PathBuf| {
        let ring = Ring::builder().name("ring").size(1).durable(fiber::Journal::at(file));
        ring.run(|_: RingNode| (), ()).wait().unwrap_err().to_string()
    };
    let refusal = Process::spawn(elsewhere, folder.file("elsewhere")).wait().unwrap();
    assert!(refusal.contains("only the program's first process"), "{refusal}");
}

#[test]
fn bad_input_is_refused() {
    Runs::of("bad rings").succeed();
}
