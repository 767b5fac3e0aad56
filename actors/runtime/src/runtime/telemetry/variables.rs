//! The `OTEL_…` variables that the SDK does not read itself.

use std::str::FromStr;
use std::time::Duration;

use fiber_core::{Error, Result};
use percent_encoding::percent_decode_str;
use ureq::http::{HeaderName, HeaderValue, Uri};

const WHAT: &str = "fiber::opentelemetry";
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The collector to which the head sends spans.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) url: Uri,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) timeout: Duration,
}

/// Returns whether the variables turn the export off.
///
/// # Errors
/// [`Error::Invalid`] for an exporter or a protocol that fiber does not have.
pub(super) fn is_off(get: impl Fn(&str) -> Option<String>) -> Result<bool> {
    let disabled = get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    match get("OTEL_TRACES_EXPORTER").as_deref() {
        Some("none") => return Ok(true),
        None | Some("otlp") => {}
        Some(other) => {
            return Err(invalid(format!(
                "OTEL_TRACES_EXPORTER is `{other}`: set `otlp` or `none`"
            )));
        }
    }
    if let Some((name, protocol)) = traces_or_all("PROTOCOL", &get)
        && protocol != "http/protobuf"
    {
        return Err(invalid(format!(
            "{name} is `{protocol}`: fiber exports by `http/protobuf`, for which collectors listen \
             on port 4318"
        )));
    }
    Ok(disabled)
}

impl Endpoint {
    /// Reads the endpoint.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the name of the variable.
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Endpoint> {
        let (name, text) = match get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(url) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url),
            None => {
                let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
                let base = get(name).unwrap_or_else(|| DEFAULT_ENDPOINT.into());
                (name, format!("{}/v1/traces", base.trim_end_matches('/')))
            }
        };
        let url = Uri::from_str(&text).ok().filter(|url| {
            matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
        });
        let url = url.ok_or_else(|| {
            invalid(format!(
                "{name} gives `{text}`, which is no URL: it looks like {DEFAULT_ENDPOINT}"
            ))
        })?;
        let mut headers = Vec::new();
        if let Some((name, text)) = traces_or_all("HEADERS", &get) {
            for header in text.split(',').filter(|header| !header.trim().is_empty()) {
                // Not the text: it may hold a secret.
                let parsed = parse_header(header);
                headers.push(parsed.ok_or_else(|| {
                    invalid(format!(
                        "{name} has a part that is no header: it looks like `name=value`"
                    ))
                })?);
            }
        }
        let timeout = match traces_or_all("TIMEOUT", &get) {
            Some((name, text)) => Duration::from_millis(text.parse().map_err(|_| {
                invalid(format!("{name} is `{text}`, which is no number of milliseconds"))
            })?),
            None => DEFAULT_TIMEOUT,
        };
        Ok(Endpoint { url, headers, timeout })
    }
}

/// Reads a variable of the process. An empty one counts as not set.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the variable for traces, or else the one for all signals.
fn traces_or_all(suffix: &str, get: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].iter().find_map(|prefix| {
        let name = format!("{prefix}{suffix}");
        get(&name).map(|value| (name, value))
    })
}

fn parse_header(header: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = header.split_once('=')?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_str(name.trim()).ok()?, value))
}

fn invalid(problem: String) -> Error {
    Error::invalid(WHAT, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| (format!("OTEL_{name}"), value.to_string()))
            .collect();
        move |name| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        }
    }

    #[test]
    fn the_variable_for_traces_takes_precedence() {
        let url =
            |variables: &[(&str, &str)]| Endpoint::read(set(variables)).unwrap().url.to_string();
        let all = ("EXPORTER_OTLP_ENDPOINT", "https://collector:4318/tenant/");
        assert_eq!(url(&[]), "http://localhost:4318/v1/traces");
        assert_eq!(url(&[all]), "https://collector:4318/tenant/v1/traces");
        let traces = ("EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:9/here");
        assert_eq!(url(&[all, traces]), "http://traces:9/here");
    }

    #[test]
    fn headers_and_timeout_are_read() {
        let endpoint = Endpoint::read(set(&[
            ("EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-tenant=7"),
            ("EXPORTER_OTLP_TIMEOUT", "250"),
        ]));
        let Endpoint { headers, timeout, .. } = endpoint.unwrap();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(headers, [("authorization", "Bearer abc"), ("x-tenant", "7")]);
        assert_eq!(timeout, Duration::from_millis(250));
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_variable() {
        for (name, value) in [
            ("EXPORTER_OTLP_ENDPOINT", "collector"),
            ("EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://collector/"),
            ("EXPORTER_OTLP_HEADERS", "secret"),
            ("EXPORTER_OTLP_TIMEOUT", "soon"),
        ] {
            let error = Endpoint::read(set(&[(name, value)])).unwrap_err().to_string();
            assert!(error.contains(&format!("OTEL_{name} ")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for (name, value) in [("EXPORTER_OTLP_PROTOCOL", "grpc"), ("TRACES_EXPORTER", "jaeger")] {
            let error = is_off(set(&[(name, value)])).unwrap_err().to_string();
            assert!(error.contains(&format!("OTEL_{name} is `{value}`")), "{error}");
        }
    }

    #[test]
    fn the_export_can_be_turned_off() {
        assert!(!is_off(set(&[])).unwrap());
        assert!(is_off(set(&[("SDK_DISABLED", "true")])).unwrap());
        assert!(is_off(set(&[("TRACES_EXPORTER", "none")])).unwrap());
    }
}
