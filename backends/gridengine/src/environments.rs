//! The parallel environments of a cluster, to refuse early what never starts.

use fiber_backends::BackendError;

use super::commands;

/// Returns the parallel environment of this name, or else the only one that there is.
///
/// # Errors
/// There is none of this name, there are several, or its slots never are as many as requested.
pub(super) async fn choose(wanted: Option<&str>, slots: u32) -> Result<String, BackendError> {
    let listed = commands::run("qconf", &["-spl"]).await?;
    let name = name(&listed, wanted, "--pe")?;
    // A pattern is for Grid Engine to choose from.
    if !is_pattern(&name) {
        let shown = commands::run("qconf", &["-sp", &name]).await?;
        check(&name, &shown, slots)?;
    }
    Ok(name)
}

/// Works as [`choose`] for a pilot, whose slots have to be on one host.
///
/// # Errors
/// Those of [`choose`]. The slots may be on several hosts.
pub(super) async fn choose_for_one_host(
    wanted: Option<&str>,
    slots: u32,
) -> Result<String, BackendError> {
    let listed = commands::run("qconf", &["-spl"]).await?;
    let name = name(&listed, wanted, "`gridengine.pe`")?;
    if is_pattern(&name) {
        return Err(refused!(
            "`gridengine.pe` is `{name}`: name one parallel environment, which gives all slots of \
             a pilot on one host"
        ));
    }
    let shown = commands::run("qconf", &["-sp", &name]).await?;
    check_for_one_host(&name, &shown, slots)?;
    Ok(name)
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

fn name(listed: &str, wanted: Option<&str>, option: &str) -> Result<String, BackendError> {
    let names: Vec<&str> = listed.split_whitespace().collect();
    let all = names.join(", ");
    match (wanted, &*names) {
        (Some(pattern), _) if is_pattern(pattern) => Ok(pattern.to_string()),
        (Some(name), names) if names.contains(&name) => Ok(name.to_string()),
        (None, [only]) => Ok(only.to_string()),
        (_, []) => {
            Err("the cluster has no parallel environment, which gives a job slots on hosts: \
                        ask its administrators for one (`qconf -ap`)"
                .into())
        }
        (Some(name), _) => Err(refused!(
            "there is no parallel environment `{name}`: choose one of {all} with {option}"
        )),
        (None, _) => Err(refused!("name a parallel environment with {option}: one of {all}")),
    }
}

fn check(name: &str, shown: &str, slots: u32) -> Result<(), BackendError> {
    if field(shown, "control_slaves").is_some_and(|value| value.eq_ignore_ascii_case("FALSE")) {
        tracing::warn!(
            "the parallel environment `{name}` has `control_slaves FALSE`: Grid Engine starts \
             nothing on the other hosts of the job, and `fiber top` can't ask the session"
        );
    }
    let on_each_host = field(shown, "allocation_rule").and_then(|rule| rule.parse::<u32>().ok());
    match on_each_host {
        Some(each) if each > 0 && !slots.is_multiple_of(each) => Err(refused!(
            "--slots {slots} never starts: the parallel environment `{name}` gives {each} slots \
             on each host, so ask for a multiple of that"
        )),
        _ => Ok(()),
    }
}

fn check_for_one_host(name: &str, shown: &str, slots: u32) -> Result<(), BackendError> {
    let rule = field(shown, "allocation_rule").unwrap_or_default();
    if rule == "$pe_slots" || rule.parse() == Ok(slots) {
        return Ok(());
    }
    Err(refused!(
        "the parallel environment `{name}` has the `allocation_rule` {rule}, which may spread the \
         {slots} slots of a pilot over hosts: set `gridengine.pe` to one with `$pe_slots`, or with \
         as many slots for each host as `gridengine.slots`"
    ))
}

/// Returns a value of what `qconf` shows.
fn field<'a>(shown: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = shown.lines().filter_map(|line| line.split_once(char::is_whitespace));
    lines.find(|(name, _)| *name == key).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_chosen_or_the_names_are_shown() {
        assert_eq!(name("mpi\n", None, "--pe").unwrap(), "mpi");
        assert_eq!(name("mpi\nsmp\n", Some("smp"), "--pe").unwrap(), "smp");
        assert_eq!(name("mpi\nsmp\n", Some("m*"), "--pe").unwrap(), "m*");
        let problem = |listed, wanted| name(listed, wanted, "--pe").unwrap_err().to_string();
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

    #[test]
    fn the_slots_of_a_pilot_have_to_be_on_one_host() {
        let check =
            |rule: &str| check_for_one_host("a", &format!("allocation_rule    {rule}\n"), 4);
        assert!(check("$pe_slots").is_ok() && check("4").is_ok());
        for rule in ["2", "8", "$fill_up", "$round_robin"] {
            let problem = check(rule).unwrap_err().to_string();
            assert!(problem.contains(rule) && problem.contains("`gridengine.pe`"), "{problem}");
        }
    }
}
