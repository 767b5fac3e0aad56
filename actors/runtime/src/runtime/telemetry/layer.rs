//! The layer of a program's subscriber that exports spans.

use std::sync::OnceLock;
use std::time::Duration;

use fiber_core::{Error, Result, variables};
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use super::collector::Collector;
use super::variables::{Endpoint, is_off, variable};

const SERVICE_NAME: Key = Key::from_static_str("service.name");
/// Time limit at the exit of this process for spans that the collector has not accepted.
const SPANS_TIMEOUT: Duration = Duration::from_secs(5);

/// Installs a subscriber that exports spans by OTLP and logs to standard error.
///
/// Call it first in `main`, before `fiber::init()`, so that all processes have it. `RUST_LOG` says
/// what is exported and logged; the default is `info`. A program with a subscriber of its own adds
/// [`layer`] to that.
///
/// The `OTEL_…` variables configure the export: see [its page].
///
#[doc = concat!("[its page]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/observability.md")]
///
/// # Errors
/// As [`layer`]; [`Error::Invalid`] if the process has a subscriber already.
///
/// # Examples
/// ```
/// # fn square(x: u64) -> u64 { x * x }
/// fn main() -> fiber::Result<()> {
///     # unsafe { std::env::set_var("OTEL_SDK_DISABLED", "true") };
///     fiber::opentelemetry::init()?;
///     fiber::init();
///     let pool = fiber::Pool::new(2)?;
///     let report = tracing::info_span!("report").entered();
///     pool.map(square, 0..10).wait()?; // the spans of the tasks are children of `report`
///     drop(report);
///     Ok(())
/// }
/// ```
pub fn init() -> Result<()> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::registry()
        .with(filter.from_env_lossy())
        .with(layer()?)
        .with(fmt::layer().with_writer(std::io::stderr))
        .try_init()
        .map_err(|error| Error::invalid("fiber::opentelemetry::init", error.to_string()))
}

/// Returns a layer that exports spans by OTLP, for a subscriber of `tracing_subscriber`'s.
///
/// Install the subscriber before `fiber::init()`, so that all processes have it, or in an
/// initializer. The layer starts no thread before `fiber::init()`.
///
/// # Errors
/// [`Error::Invalid`] if an `OTEL_…` variable is wrong.
///
/// # Examples
/// ```
/// use tracing_subscriber::prelude::*;
///
/// fn main() -> fiber::Result<()> {
///     # unsafe { std::env::set_var("OTEL_SDK_DISABLED", "true") };
///     let log = tracing_subscriber::fmt::layer().compact();
///     tracing_subscriber::registry().with(fiber::opentelemetry::layer()?).with(log).init();
///     fiber::init();
///     assert_eq!(fiber::Pool::new(1)?.apply(|x: u64| x + 1, 1).wait()?, 2);
///     Ok(())
/// }
/// ```
pub fn layer<S>() -> Result<impl Layer<S> + Send + Sync + use<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();
    if is_off(variable)? {
        return Ok(None);
    }
    if std::env::var_os(variables::PARENT).is_none() {
        // A child sends its spans to its parent.
        Endpoint::read(variable)?;
    }
    let provider = PROVIDER.get_or_init(|| {
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_span_processor(Collector)
            .build();
        global::set_tracer_provider(provider.clone());
        // The children have ended by then.
        fiber_core::at_exit::at_exit(|waiting_allowed| {
            super::finish(if waiting_allowed { SPANS_TIMEOUT } else { Duration::ZERO });
        });
        provider
    });
    Ok(Some(tracing_opentelemetry::layer().with_tracer(provider.tracer("fiber"))))
}

/// Returns the attributes of this process.
fn resource() -> Resource {
    let host = fiber_core::host_name();
    let process = [
        KeyValue::new("process.pid", i64::from(std::process::id())),
        KeyValue::new("host.name", host),
    ];
    let resource = Resource::builder().with_attributes(process);
    let name = Resource::builder().build().get(&SERVICE_NAME).map(|name| name.to_string());
    if name.is_some_and(|name| !name.starts_with("unknown_service")) {
        return resource.build();
    }
    let program = fiber_core::executable_name().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    resource
        .with_service_name(program.map_or_else(String::new, |name| name.to_string_lossy().into()))
        .build()
}
