//! The batch script of a session.

use std::path::Path;

use super::job_options::JobOptions;
use super::jobs::MARK;
use crate::BackendError;
use crate::batch::{self, HeadScript, copy_path, quoted};
use crate::cluster::session::RunRequest;
use crate::slurm::notices::COPY_HINT;
use crate::slurm::options;
use crate::slurm::script::{self, BatchScript};

/// The signal by which fiber asks a head to end. The script, which alone gets it, sends the head
/// SIGTERM. Nobody else uses it: it is SIGVTALRM.
pub(super) const ASK_TO_END: i32 = 26;
/// The remedy if the copy of the program is missing.
const MISSING_COPY: &str = "fiber has copied it to the folder for output: set XDG_STATE_HOME to a \
    folder that all nodes share";

/// Options with which fiber knows its jobs, or that would start several heads.
const RESERVED: [(&str, &str); 6] = [
    ("comment", "fiber finds its jobs by their comments"),
    ("job-name", "give the session a name with --name"),
    ("array", "a program has one head: start several sessions"),
    ("wrap", "the program is CMD"),
    ("parsable", "fiber reads the job's id itself"),
    ("wait", "use --attach"),
];
/// Options by which a user says how much of a node a job gets.
const SIZES: [&str; 10] = [
    "exclusive",
    "oversubscribe",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "cpus-per-gpu",
    "mincpus",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
];

/// Returns the options of `sbatch`.
fn options(run: &RunRequest, folder: &Path) -> Result<Vec<String>, BackendError> {
    let program = program(run, folder)?;
    let allocation = &JobOptions::of(run);
    let mut options = vec![
        format!("--job-name={}", run.name),
        format!("--comment={MARK} {} {program}", run.session),
        format!("--chdir={}", directory(allocation)?),
        format!("--output={}/{}.%j.out", folder.display(), run.name),
        "--open-mode=append".into(),
    ];
    options.push(if run.restarts > 0 { "--requeue" } else { "--no-requeue" }.into());
    options.push(format!("--nodes={}", allocation.nodes.unwrap_or(1)));
    if let Some(time) = allocation.time {
        options.push(format!("--time={}", time_limit(time)?));
    }
    let JobOptions { partition, account, qos, .. } = allocation;
    options.extend(script::named(partition.as_ref(), account.as_ref(), qos.as_ref()));
    options.extend(sizes(run, allocation));
    for option in &allocation.options {
        options.push(verbatim(option)?);
    }
    Ok(options)
}

/// Returns the options that say how much of each node the job gets: whole nodes, unless the request
/// says otherwise.
fn sizes(run: &RunRequest, allocation: &JobOptions) -> Vec<String> {
    let is_sized = allocation
        .options
        .iter()
        .any(|option| SIZES.iter().any(|size| options::sets(option, size)));
    let mut options = Vec::new();
    match run.meta.cpu {
        Some(cores) => {
            options.push("--ntasks-per-node=1".into());
            options.push(format!("--cpus-per-task={}", cores.ceil() as u64));
        }
        None if !is_sized => options.push("--exclusive".into()),
        None => {}
    }
    match run.meta.memory {
        Some(size) => options.push(format!("--mem={}M", size.as_u64().div_ceil(1 << 20))),
        None if run.meta.cpu.is_none() && !is_sized => options.push("--mem=0".into()),
        None => {}
    }
    let gpus = run.meta.gpu.filter(|count| *count > 0).map(|count| format!("gpu:{count}"));
    let gres: Vec<String> = gpus.into_iter().chain(allocation.gres.clone()).collect();
    if !gres.is_empty() {
        options.push(format!("--gres={}", gres.join(",")));
    }
    options
}

fn verbatim(option: &str) -> Result<String, BackendError> {
    if !option.starts_with('-') || option.trim_matches('-').is_empty() {
        return Err(refused!(
            "`--slurm {option}` is no option of sbatch: write it as one word, as in \
             `--slurm=--constraint=skylake`"
        ));
    }
    match options::find(option, &RESERVED) {
        Some((_, why)) => Err(refused!("`--slurm {option}` can't be passed on: {why}")),
        None => Ok(option.to_string()),
    }
}

/// Returns a duration in Slurm's form, `DAYS-HOURS:MINUTES:SECONDS`.
fn time_limit(time: std::time::Duration) -> Result<String, BackendError> {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    if seconds < 60 {
        return Err("the time limit is too short: Slurm counts in minutes, so give at least \
                    `--time 1m`"
            .into());
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    Ok(format!("{}-{:02}:{:02}:{:02}", hours / 24, hours % 24, minutes % 60, seconds % 60))
}

/// The functions of the script that pass on signals. Slurm sends a signal to the script alone
/// (`scancel --batch`): then it is passed on. Or it sends it to all processes of the job, and the
/// program has it already. That one ends the witness as well.
const FUNCTIONS: &str = r"# Ends with a signal that Slurm sends to all processes of the job.
fiber_witness() {
    $fiber_plain sleep 2147483647 &
    fiber_witness=$!
}
fiber_pass() {
    fiber_signal=$1
    (sleep 1; kill $fiber_witness && kill -$1 $fiber_head) &
    fiber_witness
}";

/// Returns the batch script.
pub(super) fn script(run: &RunRequest, folder: &Path) -> Result<BatchScript, BackendError> {
    let files = quoted(&format!("{}/{}.", folder.display(), run.name)) + "$SLURM_JOB_ID";
    let mut exports = batch::exports(run, "slurm", &files)?;
    if run.restarts > 0 {
        exports.push_str("export FIBER_RESTARTS=\"${SLURM_RESTART_COUNT:-0}\"\n");
    }
    let traps = format!(
        "fiber_witness
for fiber_signal in HUP INT QUIT ABRT USR1 USR2 ALRM TERM; do
    trap \"fiber_pass $fiber_signal\" $fiber_signal
done
trap 'fiber_signal=TERM; kill -TERM $fiber_head' {ASK_TO_END}"
    );
    let script = HeadScript {
        exports,
        node: "$SLURMD_NODENAME",
        directory: &directory(&JobOptions::of(run))?,
        elsewhere: "`--slurm=--chdir=DIRECTORY`",
        program: &program(run, folder)?,
        arguments: &run.command,
        missing: match copies_program(run) {
            true => MISSING_COPY,
            false => COPY_HINT,
        },
        begin: "rm -f \"$fiber_files.exit\"",
        before_end: requeue(run.restarts),
        functions: FUNCTIONS,
        ignored: ":",
        traps: &traps,
        ended: "kill $fiber_witness",
    };
    BatchScript::new(options(run, folder)?, script.text())
}

/// Returns the lines that queue the job again if the program has failed.
fn requeue(limit: u32) -> String {
    if limit == 0 {
        return String::new();
    }
    format!(
        r#"if [ "$1" -ne 0 ] && [ "$FIBER_RESTARTS" -lt {limit} ]; then
        # Slurm ends this script when it queues the job again.
        scontrol requeue "$SLURM_JOB_ID" 2>&4 && sleep 60
    fi
    "#
    )
}

/// Returns whether the nodes get a copy of the program (`slurm.copy`).
pub(super) fn copies_program(run: &RunRequest) -> bool {
    let last = run.environment.iter().rfind(|(name, _)| name == "FIBER_SLURM_COPY");
    last.is_some_and(|(_, value)| value.trim() == "true")
}

/// Returns the path of the program on the nodes.
fn program(run: &RunRequest, folder: &Path) -> Result<String, BackendError> {
    let mut path = batch::program_of(run)?;
    if copies_program(run) {
        path = copy_path(folder, &run.session, &path);
    }
    path.to_str().map(String::from).ok_or_else(|| {
        refused!("the path {} is no UTF-8, which Slurm's comments need", path.display())
    })
}

/// Returns the working directory of the session.
fn directory(allocation: &JobOptions) -> Result<String, BackendError> {
    let given = allocation.options.iter().rev().find_map(|option| options::value(option, "chdir"));
    let path = std::path::absolute(given.unwrap_or("."))
        .map_err(|error| format!("the working directory can't be told: {error}"))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytesize::ByteSize;
    use fiber_core::Meta;

    use super::*;
    use crate::cluster::session::ProgramSource;
    use crate::cluster::{OptionValue, OptionValues};

    fn script_of(run: &RunRequest) -> String {
        script(run, Path::new("/home/eve")).unwrap().to_string()
    }

    fn options(run: &RunRequest) -> Result<Vec<String>, BackendError> {
        super::options(run, Path::new("/home/eve"))
    }

    fn text(text: &str) -> OptionValue {
        OptionValue::Text(text.into())
    }

    fn run() -> RunRequest {
        RunRequest {
            session: "00aa11bb".into(),
            name: "job-1".into(),
            source: ProgramSource::Executable("/opt/my tools/pi".into()),
            command: vec!["--seed".into(), "it's".into()],
            meta: Meta::new(),
            volumes: Vec::new(),
            environment: vec![("GIVEN".into(), "a b".into())],
            restarts: 0,
            attach: false,
            given: Vec::new(),
            options: OptionValues::default(),
        }
    }

    #[test]
    fn a_script_has_all_of_a_session() {
        let mut request = run();
        request.options.add("nodes", OptionValue::Count(4));
        request.options.add("time", OptionValue::Time(Duration::from_secs(2 * 3600)));
        request.options.add("partition", text("gpu"));
        request.options.add("slurm", text("--constraint=a&b"));
        request.options.add("slurm", text("--exclude=n[1-2]"));
        let script = script_of(&request);
        for line in [
            "#!/bin/sh",
            "#SBATCH --job-name=job-1",
            "#SBATCH --comment=\"fiber 00aa11bb /opt/my tools/pi\"",
            "#SBATCH --output=/home/eve/job-1.%j.out",
            "#SBATCH --no-requeue",
            "#SBATCH --nodes=4",
            "#SBATCH --time=0-02:00:00",
            "#SBATCH --partition=gpu",
            "#SBATCH --exclusive",
            "#SBATCH --mem=0",
            "#SBATCH --constraint=\"a&b\"",
            "#SBATCH --exclude=\"n[1-2]\"",
            "export FIBER_BACKEND=slurm",
            "export GIVEN='a b'",
            "fiber_files=/home/eve/job-1.$SLURM_JOB_ID",
            r#"export FIBER_LOG_DIR="$fiber_files.hosts""#,
            r#"    exec $fiber_plain '/opt/my tools/pi' --seed "it's" <&3 2>&4 3<&- 4>&-"#,
        ] {
            assert!(script.lines().any(|other| other == line), "{line} is missing in\n{script}");
        }
    }

    #[test]
    fn requests_for_resources_are_for_each_node() {
        let mut request = run();
        request.meta = Meta::new().cpu(2.5).memory(ByteSize::gib(1).as_u64() + 1).gpu(2);
        request.options.add("gres", text("licence:1"));
        let options = options(&request).unwrap();
        for option in
            ["--cpus-per-task=3", "--ntasks-per-node=1", "--mem=1025M", "--gres=gpu:2,licence:1"]
        {
            assert!(options.iter().any(|other| other == option), "{option}: {options:?}");
        }
        assert!(!options.contains(&"--exclusive".into()), "{options:?}");
        // A size of the user's own takes the place of whole nodes.
        for own in ["--ntasks=3", "-n3", "-Hc4", "--mem-per-cpu=1G"] {
            let mut request = run();
            request.options.add("slurm", text(own));
            let options = super::tests::options(&request).unwrap();
            assert!(!options.contains(&"--exclusive".into()), "{options:?}");
        }
    }

    #[test]
    fn options_that_fiber_needs_itself_are_refused() {
        let refused = |option: &str| {
            let mut request = run();
            request.options.add("slurm", text(option));
            options(&request).unwrap_err().to_string()
        };
        assert!(refused("--job-name=x").contains("--name"));
        for array in ["--array=1-3", "--arr=1-3", "-a1-3", "-Qa1-3"] {
            assert!(refused(array).contains("one head"), "{array}");
        }
        assert!(refused("-Jx").contains("--name"));
        assert!(refused("gpu").contains("--slurm=--constraint"));
    }

    #[test]
    fn time_limits_are_in_slurms_form() {
        let limit = |seconds| time_limit(Duration::from_secs(seconds));
        assert_eq!(limit(60).unwrap(), "0-00:01:00");
        assert_eq!(limit(90_061).unwrap(), "1-01:01:01");
        assert!(limit(59).unwrap_err().to_string().contains("too short"));
    }

    #[test]
    fn a_program_that_fails_queues_its_job_again() {
        let mut request = run();
        request.restarts = 2;
        let script = script_of(&request);
        assert!(script.contains("#SBATCH --requeue\n") && script.contains("-lt 2"), "{script}");
        assert!(script.contains("scontrol requeue"), "{script}");
        assert!(!script_of(&run()).contains("scontrol requeue"));
    }

    #[test]
    fn a_copy_of_the_program_takes_its_place() {
        let mut request = run();
        request.environment = vec![("FIBER_SLURM_COPY".into(), "true".into())];
        let script = script_of(&request);
        let copy = "/home/eve/sessions/00aa11bb/pi";
        assert!(script.contains(&format!("--comment=\"fiber 00aa11bb {copy}\"")), "{script}");
        assert!(script.contains(&format!("exec $fiber_plain {copy} --seed")), "{script}");
        // The last variable of a name counts.
        request.environment.push(("FIBER_SLURM_COPY".into(), "false".into()));
        assert!(!script_of(&request).contains(copy));
    }

    #[test]
    fn the_working_directory_is_the_last_that_is_named() {
        let mut request = run();
        request.options.add("slurm", text("--chdir=/one"));
        request.options.add("slurm", text("-D/two"));
        let script = script_of(&request);
        assert!(script.contains("#SBATCH --chdir=/two\n"), "{script}");
        assert!(script.contains("(cd /two) ||"), "{script}");
    }
}
