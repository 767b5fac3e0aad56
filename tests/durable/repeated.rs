//! Programs that are started again after they have ended.

use fiber_test_support::trial;

use crate::sweep::Sweep;

/// Returns a line of an output, without its first word.
#[track_caller]
fn line<'a>(output: &'a str, first: &str) -> &'a str {
    let line = output.lines().find_map(|line| line.strip_prefix(first));
    line.unwrap_or_else(|| panic!("no line `{first}` in:\n{output}")).trim()
}

/// Returns the numbers as the notes of tasks, in order.
fn notes(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let mut notes: Vec<_> = numbers.into_iter().map(|number| number.to_string()).collect();
    notes.sort();
    notes
}

#[trial]
fn every_form_gives_its_outcomes_again_without_a_worker() {
    let sweep = Sweep::new();
    let (first, ran) = sweep.run("forms", &[]);
    assert_eq!(line(&first, "imap "), "[9, 16, 25]");
    assert_eq!(line(&first, "recorded"), "0");
    // The second worker may come when all is done.
    assert_ne!(line(&first, "workers"), "0");
    assert_eq!(ran.len(), 10 + 10 + 5, "{ran:?}");
    for _ in 0..2 {
        let (again, ran) = sweep.run("forms", &[]);
        assert_eq!((line(&again, "recorded"), line(&again, "workers")), ("26", "0"));
        let results = |output: &str| -> Vec<String> {
            let is_count =
                |line: &&str| line.starts_with("recorded") || line.starts_with("workers");
            output.lines().filter(|line| !is_count(line)).map(String::from).collect()
        };
        assert_eq!(results(&again), results(&first));
        assert!(ran.is_empty(), "{ran:?}");
    }
}

#[trial]
fn equal_programs_without_sync_give_their_outcomes_again() {
    let (sweep, options) = (Sweep::new(), [("ITEMS", "4,5,6"), ("WITHOUT_SYNC", "1")]);
    let (first, ran) = sweep.run("squares", &options);
    assert_eq!((first.as_str(), ran), ("[16, 25, 36]", notes(4..7)));
    assert_eq!(sweep.run("squares", &options), (first, vec![]));
}

#[trial]
fn an_endless_call_goes_on_where_it_was() {
    let sweep = Sweep::new();
    let (_, ran) = sweep.run("endless", &[("ITEMS", "100")]);
    assert!(notes(0..100).iter().all(|note| ran.contains(note)));
    // Only outcomes that were ready when the program ended come from the journal as well.
    let (out, again) = sweep.run("endless", &[("ITEMS", "10000")]);
    assert_eq!(out, "took 10000");
    let all = notes(0..10_000);
    assert!(all.iter().all(|note| ran.contains(note) || again.contains(note)));
    let seen = notes(0..100);
    assert!(!again.iter().any(|note| seen.contains(note)));
    let (_, once_more) = sweep.run("endless", &[("ITEMS", "10000")]);
    assert!(!once_more.iter().any(|note| all.contains(note)));
}

#[trial]
fn a_stopped_pool_has_recorded_what_was_detached() {
    let sweep = Sweep::new();
    assert_eq!(sweep.run("detached", &[]).1.len(), 100);
    assert_eq!(sweep.run("detached", &[]).1, Vec::<String>::new());
}

#[trial]
fn a_dropped_call_keeps_what_it_has_recorded() {
    let sweep = Sweep::new();
    let (_, first) = sweep.run("dropped", &[]);
    assert!(notes(0..10).iter().all(|note| first.contains(note)));
    let (_, again) = sweep.run("dropped", &[]);
    assert!(!notes(0..10).iter().any(|note| again.contains(note)), "{again:?}");
}

#[trial]
fn a_slow_reader_leaves_recorded_outcomes_on_the_disk() {
    let sweep = Sweep::new();
    let (out, ran) = sweep.run("slow reader", &[]);
    assert_eq!((line(&out, "ahead"), line(&out, "results"), ran.len()), ("0", "400", 400));
    let (out, ran) = sweep.run("slow reader", &[("AGAIN", "1")]);
    assert_eq!((line(&out, "results"), ran.len()), ("400", 0));
    let ahead: u64 = line(&out, "ahead").parse().unwrap();
    assert!(ahead < 40, "half of 1 MiB has room for 10 of 50 kB, not for {ahead}");
}

#[trial]
fn several_pools_share_a_journal() {
    let sweep = Sweep::new();
    let (first, ran) = sweep.run("several pools", &[]);
    assert_eq!(ran.len(), 3 * 501);
    assert_eq!(sweep.run("several pools", &[]), (first, vec![]));
}

#[trial]
fn small_and_large_values_come_back() {
    let sweep = Sweep::new();
    let (first, ran) = sweep.run("values", &[]);
    assert_eq!((ran.len(), line(&first, "recorded")), (24, "0"));
    // Over nng, nothing is in shared memory; with room for little, only a part of it.
    for variables in [[("FIBER_LINK", "nng")], [("FIBER_VALUE_MEMORY", "1MiB")], [("OTHER", "")]] {
        let (again, ran) = sweep.run("values", &variables);
        assert_eq!(ran, Vec::<String>::new(), "{variables:?}");
        assert_eq!(line(&again, "recorded"), "24");
        assert_eq!(line(&again, "arrays"), line(&first, "arrays"));
        assert_eq!(line(&again, "texts"), line(&first, "texts"));
    }
}

#[trial]
fn figures_count_what_was_recorded() {
    let sweep = Sweep::new();
    let (out, _) = sweep.run("counts", &[("ITEMS", "0,1,2,3,4,5,6,7,8,9")]);
    assert!(out.ends_with("recorded 0"), "{out}");
    let (out, ran) = sweep.run("counts", &[("ITEMS", "0,1,2,3,4,5,6,7,8,9,10")]);
    assert_eq!((out.as_str(), ran), ("calls [(10, Some(11))] recorded 10", vec![]));
}
