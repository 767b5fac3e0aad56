//! The configuration that `fiber run` forwards to a program.

use fiber_core::Config;
use serde_json::Value;

/// Settings that say where and as what the head runs. The head finds out its own.
const NOT_FORWARDED: [&str; 16] = [
    "backend",
    "image",
    "registry",
    "program",
    "network",
    "bind_host",
    "advertised_host",
    "mounts",
    "user",
    "working_dir",
    "namespace",
    "service_account",
    "pull_secrets",
    "node_selector",
    "tolerations",
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
    let (Value::Object(values), Value::Object(defaults)) =
        (serde_json::to_value(config)?, serde_json::to_value(Config::default())?)
    else {
        return Ok(Vec::new());
    };
    let differs = |(key, value): &(String, Value)| {
        defaults.get(key) != Some(value) && !NOT_FORWARDED.contains(&key.as_str())
    };
    let variable =
        |(key, value): (String, Value)| (format!("FIBER_{}", key.to_uppercase()), text(&value));
    let mut variables: Vec<_> = values.into_iter().filter(differs).map(variable).collect();
    // The last variable of a name counts.
    variables.extend(given);
    Ok(variables)
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
}
