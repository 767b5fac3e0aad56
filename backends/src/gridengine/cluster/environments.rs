//! The parallel environments of a cluster, to refuse early what never starts.

use super::super::commands;
use super::job_options::JobOptions;
use crate::BackendError;

/// Returns the parallel environment of a request, or else the only one that there is.
///
/// # Errors
/// There is none of this name, there are several, or its slots never are as many as requested.
pub(super) async fn choose(options: &JobOptions) -> Result<String, BackendError> {
    let listed = commands::run("qconf", &["-spl"]).await?;
    let name = name(&listed, options.pe.as_deref())?;
    // A pattern is for Grid Engine to choose from.
    if !name.contains(['*', '?', '[']) {
        let shown = commands::run("qconf", &["-sp", &name]).await?;
        check(&name, &shown, options.slots)?;
    }
    Ok(name)
}

fn name(listed: &str, wanted: Option<&str>) -> Result<String, BackendError> {
    let names: Vec<&str> = listed.split_whitespace().collect();
    let all = names.join(", ");
    match (wanted, &*names) {
        (Some(pattern), _) if pattern.contains(['*', '?', '[']) => Ok(pattern.to_string()),
        (Some(name), names) if names.contains(&name) => Ok(name.to_string()),
        (None, [only]) => Ok(only.to_string()),
        (_, []) => Err("the cluster has no parallel environment, which gives a job slots on hosts: \
                        ask its administrators for one (`qconf -ap`)"
            .into()),
        (Some(name), _) => Err(refused!(
            "there is no parallel environment `{name}`: choose one of {all} with --pe"
        )),
        (None, _) => Err(refused!("name a parallel environment with --pe: one of {all}")),
    }
}

fn check(name: &str, shown: &str, slots: u32) -> Result<(), BackendError> {
    let field = |key: &str| {
        let mut lines = shown.lines().filter_map(|line| line.split_once(char::is_whitespace));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value.trim())
    };
    if field("control_slaves").is_some_and(|value| value.eq_ignore_ascii_case("FALSE")) {
        tracing::warn!(
            "the parallel environment `{name}` has `control_slaves FALSE`: Grid Engine starts \
             nothing on the other hosts of the job, and `fiber top` can't ask the session"
        );
    }
    let on_each_host = field("allocation_rule").and_then(|rule| rule.parse::<u32>().ok());
    match on_each_host {
        Some(each) if each > 0 && !slots.is_multiple_of(each) => Err(refused!(
            "--slots {slots} never starts: the parallel environment `{name}` gives {each} slots \
             on each host, so ask for a multiple of that"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_chosen_or_the_names_are_shown() {
        assert_eq!(name("mpi\n", None).unwrap(), "mpi");
        assert_eq!(name("mpi\nsmp\n", Some("smp")).unwrap(), "smp");
        assert_eq!(name("mpi\nsmp\n", Some("m*")).unwrap(), "m*");
        let problem = |listed, wanted| name(listed, wanted).unwrap_err().to_string();
        assert!(problem("mpi\nsmp\n", None).contains("with --pe: one of mpi, smp"));
        assert!(problem("mpi\n", Some("x")).contains("no parallel environment `x`"));
        assert!(problem("", None).contains("administrators"));
    }

    #[test]
    fn slots_have_to_fill_hosts_where_that_is_the_rule() {
        let rule = |rule: &str| format!("pe_name  a\nallocation_rule    {rule}\nslots 9\n");
        assert!(check("a", &rule("2"), 4).is_ok() && check("a", &rule("$fill_up"), 3).is_ok());
        let problem = check("a", &rule("2"), 3).unwrap_err().to_string();
        assert!(problem.contains("--slots 3 never starts") && problem.contains("2 slots"));
    }
}
