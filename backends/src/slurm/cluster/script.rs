//! The batch script of a session.

use std::path::Path;

use super::jobs::MARK;
use crate::cluster::session::{Allocation, ProgramSource, RunRequest};
use crate::slurm::options;

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
pub(super) fn options(run: &RunRequest, folder: &Path) -> Result<Vec<String>, String> {
    let program = program(run)?;
    let directory = std::env::current_dir()
        .map_err(|error| format!("the working directory can't be told: {error}"))?;
    let allocation = &run.allocation;
    let mut options = vec![
        format!("--job-name={}", run.name),
        format!("--comment={MARK} {} {program}", run.session),
        format!("--chdir={}", directory.display()),
        format!("--output={}/{}.%j.out", folder.display(), run.name),
        "--open-mode=append".into(),
    ];
    options.push(if run.restarts > 0 { "--requeue" } else { "--no-requeue" }.into());
    options.push(format!("--nodes={}", allocation.nodes.unwrap_or(1)));
    if let Some(time) = allocation.time {
        options.push(format!("--time={}", time_limit(time)?));
    }
    let named = [
        ("partition", &allocation.partition),
        ("account", &allocation.account),
        ("qos", &allocation.qos),
    ];
    for (name, value) in named {
        options.extend(value.as_ref().map(|value| format!("--{name}={value}")));
    }
    options.extend(sizes(run, allocation));
    for option in &allocation.options {
        options.push(verbatim(option)?);
    }
    if let Some(wrong) = options.iter().find(|option| option.contains(['\n', '\0'])) {
        return Err(format!("`{wrong}` has a line break, which no option of Slurm may have"));
    }
    Ok(options)
}

/// Returns the options that say how much of each node the job gets: whole nodes, unless the request
/// says otherwise.
fn sizes(run: &RunRequest, allocation: &Allocation) -> Vec<String> {
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

fn verbatim(option: &str) -> Result<String, String> {
    if !option.starts_with('-') || option.trim_matches('-').is_empty() {
        return Err(format!(
            "`--slurm {option}` is no option of sbatch: write it as one word, as in \
             `--slurm=--constraint=skylake`"
        ));
    }
    match options::find(option, &RESERVED) {
        Some((_, why)) => Err(format!("`--slurm {option}` can't be passed on: {why}")),
        None => Ok(option.to_string()),
    }
}

/// Returns a duration in Slurm's form, `DAYS-HOURS:MINUTES:SECONDS`.
fn time_limit(time: std::time::Duration) -> Result<String, String> {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    if seconds < 60 {
        return Err("the time limit is too short: Slurm counts in minutes, so give at least \
                    `--time 1m`"
            .into());
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    Ok(format!("{}-{:02}:{:02}:{:02}", hours / 24, hours % 24, minutes % 60, seconds % 60))
}

pub(super) fn script(run: &RunRequest, options: &[String]) -> Result<String, String> {
    let mut script = String::from("#!/bin/sh\n");
    for option in options {
        script.push_str(&format!("#SBATCH {}\n", directive(option)));
    }
    script.push_str("\nexport FIBER_BACKEND=slurm\n");
    for (name, value) in &run.environment {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(char::is_numeric) {
            return Err(format!("`{name}` is no name of a variable: a script can't export it"));
        }
        script.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    let words = std::iter::once(program(run)?).chain(run.command.iter().cloned());
    let command = words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ");
    script.push_str(&match run.restarts {
        0 => format!("exec {command}\n"),
        limit => restarting(&command, limit),
    });
    Ok(script)
}

/// Returns the lines that queue the job again if the program fails. The shell outlives signals to
/// the whole job, which the program gets as well.
fn restarting(command: &str, limit: u32) -> String {
    format!(
        "starts=${{SLURM_RESTART_COUNT:-0}}
export FIBER_RESTARTS=$starts
trap : INT TERM HUP
{command}
code=$?
if [ $code -ne 0 ] && [ \"$starts\" -lt {limit} ]; then
    # Slurm ends this script when it queues the job again.
    scontrol requeue \"$SLURM_JOB_ID\" && sleep 60
fi
exit $code
"
    )
}

/// Returns an option as a line `#SBATCH` has it, which has rules of its own for quotes.
fn directive(option: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if option.chars().all(plain) {
        return option.to_string();
    }
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"");
    match option.split_once('=') {
        Some((name, value)) => format!("{name}=\"{}\"", escaped(value)),
        None => format!("\"{}\"", escaped(option)),
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn program(run: &RunRequest) -> Result<String, String> {
    let ProgramSource::Executable(path) = &run.source else {
        return Err("Slurm starts programs, not images: give the program: `fiber run --backend \
                    slurm CMD`"
            .into());
    };
    let path = std::path::absolute(path)
        .map_err(|error| format!("the path {} can't be used: {error}", path.display()))?;
    path.to_str().map(String::from).ok_or_else(|| {
        format!("the path {} is no UTF-8, which Slurm's comments need", path.display())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytesize::ByteSize;
    use fiber_core::Meta;

    use super::*;

    fn script_of(run: &RunRequest) -> String {
        script(run, &options(run).unwrap()).unwrap()
    }

    fn options(run: &RunRequest) -> Result<Vec<String>, String> {
        super::options(run, Path::new("/home/eve"))
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
            allocation: Allocation::default(),
        }
    }

    #[test]
    fn a_script_has_all_of_a_session() {
        let mut request = run();
        request.allocation.nodes = Some(4);
        request.allocation.time = Some(Duration::from_secs(2 * 3600));
        request.allocation.partition = Some("gpu".into());
        request.allocation.options = vec!["--constraint=a&b".into(), "--exclude=n[1-2]".into()];
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
            r"exec '/opt/my tools/pi' --seed 'it'\''s'",
        ] {
            assert!(script.lines().any(|other| other == line), "{line} is missing in\n{script}");
        }
    }

    #[test]
    fn requests_for_resources_are_for_each_node() {
        let mut request = run();
        request.meta = Meta::new().cpu(2.5).memory(ByteSize::gib(1).as_u64() + 1).gpu(2);
        request.allocation.gres = Some("licence:1".into());
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
            request.allocation.options = vec![own.into()];
            let options = super::tests::options(&request).unwrap();
            assert!(!options.contains(&"--exclusive".into()), "{options:?}");
        }
    }

    #[test]
    fn options_that_fiber_needs_itself_are_refused() {
        let refused = |option: &str| {
            let mut request = run();
            request.allocation.options = vec![option.into()];
            options(&request).unwrap_err()
        };
        assert!(refused("--job-name=x").contains("--name"));
        for array in ["--array=1-3", "--arr=1-3", "-a1-3", "-Qa1-3"] {
            assert!(refused(array).contains("one head"), "{array}");
        }
        assert!(refused("-Jx").contains("--name"));
        assert!(refused("gpu").contains("--slurm=--constraint"));
        assert!(refused("--licenses=a\nb").contains("line break"));
    }

    #[test]
    fn time_limits_are_in_slurms_form() {
        let limit = |seconds| time_limit(Duration::from_secs(seconds));
        assert_eq!(limit(60).unwrap(), "0-00:01:00");
        assert_eq!(limit(90_061).unwrap(), "1-01:01:01");
        assert!(limit(59).unwrap_err().contains("too short"));
    }

    #[test]
    fn a_program_that_fails_queues_its_job_again() {
        let mut request = run();
        request.restarts = 2;
        let script = script_of(&request);
        assert!(script.contains("#SBATCH --requeue\n") && script.contains("-lt 2"), "{script}");
        assert!(script.contains("scontrol requeue") && !script.contains("exec "), "{script}");
    }
}
