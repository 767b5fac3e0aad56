//! The page about the configuration, `docs/configuration.md`.

use std::fmt::Write;

use figment::value::Value;

use super::{Config, PREFIX, SECTIONS};

const INTRODUCTION: &str = "\
# Configuration

<!-- `make reference` writes this page from the options in core/src/config.rs. -->

Fiber takes each value from the code (`fiber::init_with`, builders), else from the environment, else
from `fiber.toml` in the working directory (or the file that `FIBER_CONFIG` names), else it uses the
default. Unknown names are errors. Children receive their parent's configuration.

`init_with` may be called several times before fiber reads the configuration, which it does for the
first pool, process or other object. A call after that panics.

In the file, lists are written as TOML lists; in the environment, with commas. Durations are written
`100us`, `500ms`, `10s`, `2m`; sizes `64KiB`, `1GiB`.

[Docker](docker.md), [Kubernetes](kubernetes.md) and [ssh](ssh.md) explain the backends,
[semantics](semantics.md#pools) what pools do with `call_buffer`.
";

impl Config {
    /// Returns the text of `docs/configuration.md`.
    #[doc(hidden)]
    pub fn page() -> String {
        let defaults = Value::serialize(Config::default()).expect("all options serialise");
        let mut page = INTRODUCTION.to_string();
        for (title, options) in SECTIONS {
            page += &format!(
                "\n## {title}\n\n| key | environment | default | meaning |\n|---|---|---|---|\n"
            );
            for option in *options {
                let default = defaults.find_ref(option.name).map(text).unwrap_or_default();
                let default = if default.is_empty() { default } else { format!("`{default}` ") };
                let meaning: Vec<_> = option.documentation.split_whitespace().collect();
                let (name, variable) = (option.name, option.name.to_uppercase());
                let meaning = meaning.join(" ");
                writeln!(page, "| `{name}` | `{PREFIX}{variable}` | {default}| {meaning} |")
                    .expect("a text takes all");
            }
        }
        page
    }
}

/// Returns a default as the environment spells it, or an empty text if there is none.
fn text(value: &Value) -> String {
    match value {
        Value::String(_, text) => text.replace(".0 ", ""),
        Value::Num(_, number) => number.to_u128().unwrap_or_default().to_string(),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Array(_, values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        _ => String::new(),
    }
}
