use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use fiber_core::ProcessId;
use fiber_core::stats::{
    ActorStats, FunctionStats, PoolPhase, PoolStats, ProcessRole, ProcessStats, ProcessUsage,
    QueueStats, Report, RingStats, RunningTask, WorkerStats,
};

use super::table::METRICS;
use super::*;

fn process(id: u64, role: ProcessRole, cpu: u64) -> ProcessStats {
    let mut process =
        ProcessStats::new(ProcessId(id), format!("p-{id}"), role, SystemTime::UNIX_EPOCH);
    let mut usage = ProcessUsage::new(SystemTime::UNIX_EPOCH);
    usage.cpu = Duration::from_secs(cpu);
    usage.memory = 1 << 20;
    // Only the head's system tells it.
    usage.pss = (id == 1).then_some(4096);
    (usage.spilled, usage.value_limit) = (4096, 1_000_000);
    (usage.elsewhere, usage.outputs) = (500, 7);
    process.usage = Some(usage);
    process
}

fn pool(name: &str, worker: u64, done: u64) -> PoolStats {
    let mut pool = PoolStats::new(ProcessId(1), name.to_string(), PoolPhase::Open);
    pool.wanted = 2;
    pool.ready = 1;
    pool.deaths = 3;
    pool.tasks.waiting = 5;
    let mut function = FunctionStats::new("demo::<\"x\">\\step".into());
    function.done = done;
    function.times.record(1_000, done);
    pool.functions.push(function);
    let mut busy = WorkerStats::new(ProcessId(worker), format!("worker-{worker}"), 1);
    let ran = Duration::from_millis(250);
    busy.running.push(RunningTask::new(1, "demo::<\"x\">\\step".into(), 7, ran));
    busy.running.push(RunningTask::new(1, "demo::<\"x\">\\step".into(), 8, ran / 2));
    pool.workers.push(busy);
    pool
}

/// Returns a queue of the head. Consumers have taken 3 of its elements.
fn queue(name: &str, number: u64, put: u64) -> QueueStats {
    let mut queue = QueueStats::new(ProcessId(1), number, name.into());
    (queue.length, queue.bytes) = (put - 3, 100 * (put - 3));
    (queue.put, queue.taken) = (put, 3);
    (queue.blocked, queue.waiting) = (number, 0);
    queue
}

/// Returns an actor of type `demo::Counter` in a process.
fn actor(name: &str, process: u64, number: u64) -> ActorStats {
    let mut actor = ActorStats::new(ProcessId(process), number, "demo::Counter");
    actor.name = name.into();
    actor.latency.record(2_000_000, 3);
    (actor.handled, actor.waiting) = (3, 1);
    actor
}

fn session(report: Report) -> SessionStats {
    SessionStats::new(7, "demo".into(), "local".into(), report)
}

fn full() -> SessionStats {
    let mut report = Report::default();
    report.processes.push(process(1, ProcessRole::Head, 1));
    report.processes.push(process(2, ProcessRole::Worker, 2));
    report.processes.push(process(3, ProcessRole::Worker, 4));
    report.pools.push(pool("squares", 2, 10));
    report.queues.push(queue("jobs", 1, 9));
    report.queues.push(queue("src/main.rs:12", 2, 5));
    report.actors.push(actor("Counter", 1, 5));
    let mut ring = RingStats::new(ProcessId(1), "ring".into(), "demo::rank".into());
    ring.ranks = vec![Some(1), None];
    report.rings.push(ring);
    session(report)
}

/// Returns the value of the line that begins with `series`.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{series} is missing in:\n{text}")).parse().unwrap()
}

#[test]
fn figures_become_series() {
    let text = Renderer::default().render(&full(), &EventCounts::default(), Format::Prometheus);
    let of = |series: &str| value(&text, series);
    assert_eq!(of("fiber_pool_tasks_waiting{pool=\"squares\"}"), 5.0);
    assert_eq!(of("fiber_pool_worker_deaths_total{pool=\"squares\"}"), 3.0);
    assert_eq!(of("fiber_process_cpu_seconds_total{role=\"worker\"}"), 6.0);
    assert_eq!(of("fiber_process_resident_memory_bytes{role=\"worker\"}"), 2_097_152.0);
    assert_eq!(of("fiber_process_pss_bytes{role=\"head\"}"), 4096.0);
    assert!(!text.contains("fiber_process_pss_bytes{role=\"worker\"}"), "{text}");
    assert_eq!(of("fiber_processes{role=\"head\",state=\"running\"}"), 1.0);
    assert_eq!(of("fiber_queues"), 2.0);
    assert_eq!(of("fiber_values_spilled_bytes{role=\"head\"}"), 4096.0);
    assert_eq!(of("fiber_values_limit_bytes{role=\"worker\"}"), 2_000_000.0);
    assert_eq!(of("fiber_values_elsewhere_bytes{role=\"worker\"}"), 1000.0);
    assert_eq!(of("fiber_values_outputs{role=\"worker\"}"), 14.0);
    assert_eq!(of("fiber_ring_nodes{state=\"missing\"}"), 1.0);
    let labels = "{actor=\"Counter\",type=\"demo::Counter\"}";
    assert_eq!(of(&format!("fiber_actor_latency_seconds_count{labels}")), 3.0);
    // Texts of the program are escaped.
    let labels = "{pool=\"squares\",function=\"demo::<\\\"x\\\">\\\\step\"}";
    assert_eq!(of(&format!("fiber_tasks_done_total{labels}")), 10.0);
    assert_eq!(of(&format!("fiber_longest_task_seconds{labels}")), 0.25);
}

#[test]
fn each_queue_has_series_of_its_own() {
    let mut renderer = Renderer::default();
    let mut render =
        |stats: &SessionStats| renderer.render(stats, &EventCounts::default(), Format::Prometheus);
    let mut stats = full();
    let text = render(&stats);
    for (metric, jobs, other) in [
        ("fiber_queue_elements", 6.0, 2.0),
        ("fiber_queue_bytes", 600.0, 200.0),
        ("fiber_queue_puts_blocked", 1.0, 2.0),
        ("fiber_queue_consumers_waiting", 0.0, 0.0),
        ("fiber_queue_elements_put_total", 9.0, 5.0),
        ("fiber_queue_elements_taken_total", 3.0, 3.0),
    ] {
        assert_eq!(value(&text, &format!("{metric}{{queue=\"jobs\"}}")), jobs);
        assert_eq!(value(&text, &format!("{metric}{{queue=\"src/main.rs:12\"}}")), other);
    }
    // A queue ends: its gauges end with it, its counters stay, and go on in one of its name.
    stats.report.queues = vec![queue("jobs", 3, 4)];
    let text = render(&stats);
    assert_eq!(value(&text, "fiber_queue_elements_put_total{queue=\"jobs\"}"), 13.0);
    assert_eq!(value(&text, "fiber_queue_elements_put_total{queue=\"src/main.rs:12\"}"), 5.0);
    assert!(!text.contains("fiber_queue_elements{queue=\"src/main.rs:12\"}"), "{text}");
}

#[test]
fn queues_with_many_names_share_series() {
    let mut renderer = Renderer::default();
    let mut render = |numbers: std::ops::Range<u64>| {
        let mut report = Report::default();
        report.queues = numbers.map(|n| queue(&format!("queue-{n}"), n, 4)).collect();
        renderer.render(&session(report), &EventCounts::default(), Format::Prometheus)
    };
    let series = |text: &str, metric: &str| -> usize {
        text.lines().filter(|line| line.starts_with(&format!("{metric}{{"))).count()
    };
    let put_of_others = "fiber_queue_elements_put_total{queue=\"(others)\"}";
    let text = render(0..300);
    assert_eq!(series(&text, "fiber_queue_elements"), 101);
    assert_eq!(value(&text, "fiber_queue_elements{queue=\"(others)\"}"), 200.0);
    assert_eq!(value(&text, put_of_others), 800.0);
    assert_eq!(text, render(0..300));
    // Names with series of their own become free, and the others count no element twice.
    let text = render(50..300);
    assert_eq!(value(&text, put_of_others), 800.0);
    let text = render(50..350);
    assert_eq!(value(&text, "fiber_queue_elements{queue=\"queue-349\"}"), 1.0);
    assert_eq!(value(&text, put_of_others), 800.0);
    // All series together have a limit, however many queues come and go.
    for begin in (400..4_000).step_by(200) {
        render(begin..begin + 200);
    }
    let text = render(0..0);
    assert!(series(&text, "fiber_queue_elements_put_total") <= 102, "{text}");
    let put: f64 = text
        .lines()
        .filter(|line| line.starts_with("fiber_queue_elements_put_total{"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert_eq!(put, 4.0 * (350.0 + 18.0 * 200.0));
}

#[test]
fn actors_with_many_names_share_series() {
    let mut report = Report::default();
    report.actors = (0..300)
        .map(|number| {
            let mut actor = actor(&format!("actor-{number}"), number, 0);
            actor.names = vec![format!("name-{number}")];
            actor
        })
        .collect();
    let text =
        Renderer::default().render(&session(report), &EventCounts::default(), Format::Prometheus);
    let of = |series: &str| value(&text, series);
    assert_eq!(of("fiber_actor_name_info{actor=\"actor-99\",name=\"name-99\"}"), 1.0);
    assert!(!text.contains("name-100"), "{text}");
    let others = "{actor=\"(others)\",type=\"(others)\"}";
    assert_eq!(of(&format!("fiber_actor_messages_waiting{others}")), 200.0);
    assert_eq!(of(&format!("fiber_actor_messages_handled_total{others}")), 600.0);
}

#[test]
fn each_restart_of_an_actor_counts_once() {
    let mut renderer = Renderer::default();
    let mut restarts = |processes: u64, in_process: u64| {
        let mut report = Report::default();
        let mut actor = actor("teller", 10 + processes, ActorStats::MANAGED);
        actor.restarts = processes + in_process;
        actor.restarts_before = processes.saturating_sub(1);
        report.actors.push(actor);
        let text = renderer.render(&session(report), &EventCounts::default(), Format::Prometheus);
        value(&text, "fiber_actor_restarts_total{actor=\"teller\",type=\"demo::Counter\"}")
    };
    assert_eq!((restarts(0, 0), restarts(0, 2)), (0.0, 2.0));
    // Its process dies, and again.
    assert_eq!((restarts(1, 0), restarts(1, 1), restarts(2, 0)), (3.0, 4.0, 5.0));
}

#[test]
fn the_buckets_of_a_histogram_count_all_shorter_durations() {
    let mut stats = full();
    let times = &mut stats.report.actors[0].latency;
    *times = Default::default();
    for nanos in [0, 1_000, 1_023, 1_025, 5_000, 3_600_000_000_000, u64::MAX] {
        times.record(nanos, 1);
    }
    let text = Renderer::default().render(&stats, &EventCounts::default(), Format::Prometheus);
    let below = |bound| {
        value(
            &text,
            &format!(
                "fiber_actor_latency_seconds_bucket{{actor=\"Counter\",type=\"demo::Counter\",\
                 le=\"{bound}\"}}"
            ),
        )
    };
    assert_eq!((below("0.000001024"), below("0.000004096"), below("0.000016384")), (3.0, 4.0, 5.0));
    assert_eq!((below("1099.511627776"), below("17592.186044416"), below("+Inf")), (5.0, 6.0, 7.0));
    let bounds: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with("fiber_actor_latency_seconds_bucket"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(bounds.len() == 19 && bounds.is_sorted(), "{bounds:?}");
}

#[test]
fn counters_never_go_down() {
    let mut renderer = Renderer::default();
    let mut render =
        |stats: &SessionStats| renderer.render(stats, &EventCounts::default(), Format::Prometheus);
    let cpu = "fiber_process_cpu_seconds_total{role=\"worker\"}";
    let deaths = "fiber_pool_worker_deaths_total{pool=\"squares\"}";
    let mut stats = full();
    let before = render(&stats);
    assert_eq!(value(&before, cpu), 6.0);
    // A worker dies, and another one takes its place.
    stats.report.processes.remove(1);
    stats.report.processes.push(process(4, ProcessRole::Worker, 1));
    stats.report.pools = vec![pool("squares", 4, 10)];
    let after = render(&stats);
    assert_eq!(value(&after, cpu), 7.0);
    // The pool ends: its gauges end with it, its counters stay.
    stats.report.pools.clear();
    let ended = render(&stats);
    assert_eq!(value(&ended, deaths), 3.0);
    assert!(!ended.contains("fiber_pool_workers_ready"), "{ended}");
    // Another pool has the same name.
    stats.report.pools.push(pool("squares", 5, 4));
    let again = render(&stats);
    assert_eq!(value(&again, deaths), 6.0);
    // A scrape changes nothing.
    assert_eq!(again, render(&stats));
}

#[test]
fn pools_of_the_head_leave_exact_totals() {
    let mut renderer = Renderer::default();
    let mut report = Report::default();
    report.processes.push(process(1, ProcessRole::Head, 1));
    let with = |pools: Vec<PoolStats>| {
        let mut report = report.clone();
        report.pools = pools;
        session(report)
    };
    let function = "function=\"demo::<\\\"x\\\">\\\\step\"";
    let done = format!("fiber_tasks_done_total{{pool=\"squares\",{function}}}");
    let render = |renderer: &mut Renderer, pools| {
        let text = renderer.render(&with(pools), &EventCounts::default(), Format::Prometheus);
        value(&text, &done)
    };
    assert_eq!(render(&mut renderer, vec![pool("squares", 2, 10)]), 10.0);
    // It is gone before its last statistics arrive, and another one has its name.
    assert_eq!(render(&mut renderer, vec![]), 10.0);
    renderer.end(&pool("squares", 2, 15));
    assert_eq!(render(&mut renderer, vec![pool("squares", 3, 1)]), 16.0);
    // Two end between scrapes, one of them without having been seen.
    renderer.end(&pool("squares", 3, 2));
    renderer.end(&pool("squares", 4, 100));
    assert_eq!(render(&mut renderer, vec![]), 117.0);
    assert_eq!(render(&mut renderer, vec![]), 117.0);
}

#[test]
fn many_pools_that_have_ended_share_series() {
    let mut renderer = Renderer::default();
    for number in 0..120 {
        let mut report = Report::default();
        report.pools.push(pool(&format!("pool-{number}"), number, 10));
        renderer.render(&session(report), &EventCounts::default(), Format::Prometheus);
    }
    let text =
        renderer.render(&session(Report::default()), &EventCounts::default(), Format::Prometheus);
    let deaths: Vec<_> =
        text.lines().filter(|line| line.starts_with("fiber_pool_worker_deaths_total{")).collect();
    assert_eq!(deaths.len(), 101);
    assert_eq!(value(&text, "fiber_pool_worker_deaths_total{pool=\"(ended)\"}"), 60.0);
    assert!(text.contains("pool=\"pool-119\"") && !text.contains("pool=\"pool-1\""));
}

#[test]
fn the_format_follows_the_clients_preference() {
    for (accept, format) in [
        ("", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("text/plain", Format::Prometheus),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.5", Format::Prometheus),
        ("application/openmetrics-text;q=0", Format::Prometheus),
        ("application/openmetrics-text;q=nonsense", Format::OpenMetrics),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

#[test]
fn openmetrics_names_units_and_ends() {
    let text = Renderer::default().render(&full(), &EventCounts::default(), Format::OpenMetrics);
    for line in [
        "# TYPE fiber_build info",
        "# TYPE fiber_tasks_done counter",
        "# TYPE fiber_task_duration_seconds histogram",
        "# UNIT fiber_process_cpu_seconds seconds",
        "# UNIT fiber_pool_sent_bytes bytes",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    assert!(
        !Renderer::default()
            .render(&full(), &EventCounts::default(), Format::Prometheus)
            .contains("EOF")
    );
}

#[test]
fn every_metric_has_a_name_by_the_conventions() {
    let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name()).collect();
    for (name, metric) in names.iter().zip(METRICS) {
        assert!(name.starts_with("fiber_") && metric.help.ends_with('.'), "{name}");
        assert!(!metric.labels.iter().any(|label| ["task", "worker", "index"].contains(label)));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), METRICS.len());
}

/// Prometheus' own checker finds nothing to complain about.
#[test]
fn promtool_accepts_the_text() {
    let mut stats = full();
    stats.report.pools[0].functions[0].times.record(1 << 40, 1);
    let text = Renderer::default().render(&stats, &EventCounts::default(), Format::Prometheus);
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        return eprintln!("skipped: there is no promtool (scripts/setup.sh observability)");
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && complaints.is_empty(), "{complaints}\n{text}");
}

#[test]
fn the_page_about_the_metrics_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page(), "{path} is stale: `make reference` writes it");
}

/// Returns the path of a file below `deploy`.
fn deployed(path: &str) -> String {
    format!("{}/../../deploy/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the names of metrics in a text.
fn names_in(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("fiber_")).collect()
}

#[test]
fn alerts_and_dashboards_query_metrics_that_exist() {
    let is_known = |word: &str| {
        METRICS.iter().any(|metric| match word.strip_prefix(&metric.name()) {
            Some("") => metric.kind != table::Kind::Histogram,
            Some("_bucket" | "_sum" | "_count") => metric.kind == table::Kind::Histogram,
            _ => false,
        })
    };
    for path in
        ["prometheus/fiber-rules.yml", "prometheus/fiber-rules-test.yml", "grafana/fiber.json"]
    {
        let text = std::fs::read_to_string(deployed(path)).unwrap();
        let names = names_in(&text);
        assert!(names.len() > 8, "{path}");
        let unknown: Vec<_> = names.into_iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{path} has unknown metrics: {unknown:?}");
    }
}

#[test]
fn the_dashboard_is_json_whose_panels_have_queries() {
    let text = std::fs::read_to_string(deployed("grafana/fiber.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        let queries = panel["targets"].as_array().map_or(0, Vec::len);
        assert!(panel["type"] == "row" || queries > 0, "{panel}");
    }
}

#[test]
fn the_alerts_pass_their_tests() {
    for (command, path) in [
        (["check", "config"], "prometheus/prometheus.yml"),
        (["check", "rules"], "prometheus/fiber-rules.yml"),
        (["test", "rules"], "prometheus/fiber-rules-test.yml"),
    ] {
        let checked = Command::new("promtool").args(command).arg(deployed(path)).output();
        let Ok(checked) = checked else {
            return eprintln!("skipped: there is no promtool (scripts/setup.sh observability)");
        };
        let said = [checked.stdout, checked.stderr].concat();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}
