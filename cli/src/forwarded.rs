//! The configuration that `fiber run` forwards to a program.

use fiber_core::Config;
use serde_json::{Map, Value};

/// Settings that say where and as what the head runs. The head finds out its own. Sections of such
/// settings say so themselves.
const NOT_FORWARDED: [&str; 10] = [
    "backend",
    "image",
    "registry",
    "program",
    "bind_host",
    "advertised_host",
    "mounts",
    "user",
    "working_dir",
    "gpus",
];

/// Returns all settings that differ from the defaults, as environment variables, followed by the
/// `given` ones. Workers get these as well.
pub(crate) fn variables(
    config: &Config,
    given: Vec<(String, String)>,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut config = config.clone();
    let names = given.iter().map(|(name, _)| name).filter(|name| !name.starts_with("FIBER_"));
    config.environment.extend(names.cloned());
    let (Value::Object(mut values), Value::Object(mut defaults)) =
        (serde_json::to_value(config)?, serde_json::to_value(Config::default())?)
    else {
        return Ok(Vec::new());
    };
    let sections = by_variable(values.remove("sections"));
    defaults.remove("sections");
    let differs = |(key, value): &(String, Value)| {
        defaults.get(key) != Some(value) && !NOT_FORWARDED.contains(&key.as_str())
    };
    let variable =
        |(key, value): (String, Value)| (format!("FIBER_{}", key.to_uppercase()), text(&value));
    let mut variables: Vec<_> = values.into_iter().filter(differs).map(variable).collect();
    variables.extend(sections);
    // The last variable of a name counts.
    variables.extend(given);
    Ok(variables)
}

/// Returns the options of forwarded sections as environment variables.
fn by_variable(sections: Option<Value>) -> impl Iterator<Item = (String, String)> {
    let named = |value: Option<Value>| match value {
        Some(Value::Object(values)) => values,
        _ => Map::new(),
    };
    let sections = named(sections).into_iter().filter(|(name, _)| Config::is_forwarded(name));
    sections.flat_map(move |(section, options)| {
        named(Some(options)).into_iter().map(move |(key, value)| {
            (format!("FIBER_{section}_{key}").to_uppercase(), text(&value))
        })
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fiber_backends::{KubernetesSection, SlurmSection, SshSection};

    use super::*;

    #[test]
    fn changed_settings_are_forwarded_except_those_of_the_place() {
        let mut config = Config::default();
        assert_eq!(variables(&config, Vec::new()).unwrap(), []);
        config.backend = "docker".into();
        config.heartbeat = Duration::from_millis(1500);
        config.processes = 3;
        config.signals = false;
        config.environment = vec!["A".into(), "B=1".into()];
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let mut variables =
            variables(&config, vec![pair("C", "2"), pair("FIBER_LOG_DIR", "/logs")]).unwrap();
        variables.sort();
        let wanted = [
            pair("C", "2"),
            pair("FIBER_ENVIRONMENT", "A,B=1,C"),
            pair("FIBER_HEARTBEAT", "1s 500ms"),
            pair("FIBER_LOG_DIR", "/logs"),
            pair("FIBER_PROCESSES", "3"),
            pair("FIBER_SIGNALS", "false"),
        ];
        assert_eq!(variables, wanted);
    }

    #[test]
    fn sections_are_forwarded_except_those_of_the_place() {
        let mut config = Config::default();
        config.edit(|kubernetes: &mut KubernetesSection| kubernetes.namespace = Some("x".into()));
        config.edit(|slurm: &mut SlurmSection| slurm.pilots = 2);
        config.edit(|ssh: &mut SshSection| ssh.hosts = vec!["a".into(), "b:2".into()]);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            variables(&config, Vec::new()).unwrap(),
            [pair("FIBER_SLURM_PILOTS", "2"), pair("FIBER_SSH_HOSTS", "a,b:2")]
        );
    }
}
