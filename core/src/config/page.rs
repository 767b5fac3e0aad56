//! The page about the configuration, `docs/configuration.md`.

use std::fmt::Write;

use serde_json::Value;

use super::section::{SectionEntry, entries};
use super::{Config, GROUPS, PREFIX};

const INTRODUCTION: &str = "\
# Configuration

<!-- `make reference` writes this page from core/src/config.rs and the sections of backends. -->

Fiber takes each value from the code (`fiber::init_with`, builders), else from the environment, else
from `fiber.toml` in the working directory or the nearest one above it (or the file that
`FIBER_CONFIG` names), else it uses the default. Unknown names are errors. Children receive their
parent's configuration.

Fiber looks for `fiber.toml` up to the home directory, and within one file system. A file that
another user could have written [is an error](security.md#which-configuration-file-counts).
`init_with` may be called several times before the first pool, process or other object; a call after
that panics.

In the file, lists are written as TOML lists; in the environment, with commas. Durations are written
`100us`, `500ms`, `10s`, `2m`; sizes `64KiB`, `1GiB`.

The options of a backend are in its section: `partition` of `[slurm]` is

```toml
[slurm]
partition = \"short\"     # or, at the top of the file: slurm.partition = \"short\"
```

or `FIBER_SLURM_PARTITION`, or `config.edit(|slurm: &mut SlurmSection| …)` in code.

The pages of [backends](hosts.md#backends) explain their options.
";

impl Config {
    /// Returns the text of `docs/configuration.md`.
    #[doc(hidden)]
    pub fn page() -> String {
        let defaults = serde_json::to_value(Config::default()).expect("all options serialize");
        let mut page = INTRODUCTION.to_string();
        for (title, options) in GROUPS {
            page += &format!(
                "\n## {title}\n\n| key | environment | default | meaning |\n|---|---|---|---|\n"
            );
            for option in *options {
                let default = shown(defaults.get(option.name));
                let (name, variable) = (option.name, option.name.to_uppercase());
                let meaning = one_line(option.documentation);
                writeln!(page, "| `{name}` | `{PREFIX}{variable}` | {default}| {meaning} |")
                    .expect("a text takes all");
            }
        }
        let known = entries().filter(|entry| !entry.keys.is_empty());
        known.for_each(|entry| add_section(&mut page, &entry));
        page
    }
}

fn add_section(page: &mut String, entry: &SectionEntry) {
    let defaults = (entry.defaults)();
    *page += &format!("\n## `[{}]`\n\n{}\n\n", entry.name, one_line(entry.about));
    *page += "| key | environment | default | meaning |\n|---|---|---|---|\n";
    for key in entry.keys {
        let variable = entry.variable(key.name).to_uppercase();
        let (name, default) = (key.name, shown(defaults.get(key.name)));
        let meaning = one_line(key.documentation);
        writeln!(page, "| `{name}` | `{PREFIX}{variable}` | {default}| {meaning} |")
            .expect("a text takes all");
    }
}

/// Returns a doc comment without its line breaks.
fn one_line(documentation: &str) -> String {
    documentation.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a default as a cell of a table.
fn shown(default: Option<&Value>) -> String {
    match default.map(text).unwrap_or_default() {
        default if default.is_empty() => default,
        default => format!("`{default}` "),
    }
}

/// Returns a default as the environment spells it, or an empty text if there is none.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace(".0 ", ""),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        _ => String::new(),
    }
}
