//! The options of sections by their earlier names, for programs that set them in code.

#![allow(deprecated, reason = "this is where they are defined")]

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::section::{Sections, entries};
use super::values::{duration, lenient, size};
use super::{Config, ConfigProblem, ConfigSource};
use crate::json::{Values, read};

/// Defines [`EarlierNames`], with the section of each option in its documentation.
macro_rules! earlier_names {
    ($(
        $section:literal {
            $($(#[serde($($serde:tt)*)])? $name:ident => $key:literal: $type:ty = $default:expr,)+
        }
    )+) => {
        /// Options that are in sections now, by their earlier names.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct EarlierNames {
            $($(
                #[doc = concat!("Now `", $key, "` in the section `[", $section, "]`.")]
                #[deprecated(note = "it is in a section now: see `Config::edit`")]
                $(#[serde($($serde)*)])?
                pub $name: $type,
            )+)+
        }

        impl Default for EarlierNames {
            fn default() -> EarlierNames {
                EarlierNames { $($($name: $default,)+)+ }
            }
        }
    };
}

earlier_names! {
    "docker" {
        network => "network": Option<String> = None,
    }
    "kubernetes" {
        namespace => "namespace": Option<String> = None,
        service_account => "service_account": Option<String> = None,
        #[serde(deserialize_with = "lenient::list")]
        pull_secrets => "pull_secrets": Vec<String> = Vec::new(),
        #[serde(deserialize_with = "lenient::list")]
        node_selector => "node_selector": Vec<String> = Vec::new(),
        #[serde(deserialize_with = "lenient::list")]
        tolerations => "tolerations": Vec<String> = Vec::new(),
    }
    "slurm" {
        slurm_copy => "copy": bool = false,
        slurm_pilots => "pilots": usize = 0,
        slurm_dry_run => "dry_run": bool = false,
        slurm_partition => "partition": Option<String> = None,
        #[serde(deserialize_with = "lenient::text")]
        slurm_account => "account": Option<String> = None,
        slurm_qos => "qos": Option<String> = None,
        #[serde(with = "duration")]
        slurm_time => "time": Duration = Duration::from_secs(3600),
        #[serde(deserialize_with = "lenient::list")]
        slurm_options => "options": Vec<String> = Vec::new(),
        slurm_dir => "dir": PathBuf = "fiber-slurm".into(),
    }
    "ssh" {
        #[serde(deserialize_with = "lenient::list")]
        hosts => "hosts": Vec<String> = Vec::new(),
        #[serde(deserialize_with = "lenient::path")]
        hosts_file => "hosts_file": Option<PathBuf> = None,
        #[serde(deserialize_with = "lenient::path")]
        ssh_config => "config": Option<PathBuf> = None,
        #[serde(deserialize_with = "lenient::path")]
        ssh_cache => "cache": Option<PathBuf> = None,
        #[serde(with = "size")]
        ssh_cache_size => "cache_size": ByteSize = ByteSize::gib(2),
    }
}

impl EarlierNames {
    /// Returns the options as the sections have them.
    pub(super) fn of(sections: &Sections) -> EarlierNames {
        let mut values = Values::new();
        for entry in entries() {
            for key in entry.keys {
                if let (Some(earlier), Some(value)) =
                    (key.earlier, sections.get(entry.name, key.name))
                {
                    values.insert(earlier.into(), value.clone());
                }
            }
        }
        // The section has checked them.
        read(&values).unwrap_or_default()
    }

    fn values(&self) -> Result<Values, ConfigProblem> {
        match serde_json::to_value(self) {
            Ok(Value::Object(values)) => Ok(values),
            Ok(_) => unreachable!("a struct is an object"),
            Err(error) => Err(ConfigProblem::Unreadable {
                source: ConfigSource::Code,
                message: error.to_string(),
            }),
        }
    }
}

/// Programs may go on to write `config.slurm_pilots = 2`.
impl Deref for Config {
    type Target = EarlierNames;

    fn deref(&self) -> &EarlierNames {
        &self.earlier
    }
}

impl DerefMut for Config {
    fn deref_mut(&mut self) -> &mut EarlierNames {
        Arc::make_mut(&mut self.earlier)
    }
}

/// The options of sections that code has set so far.
#[derive(Debug, Default)]
pub(super) struct CodeChanges {
    by_name: Vec<String>,
    by_earlier_name: Vec<String>,
}

impl CodeChanges {
    /// Lets `change` change the configuration. Options that it sets by their earlier names get into
    /// their sections.
    ///
    /// # Errors
    /// Code has set an option by both of its names.
    pub(super) fn apply(
        &mut self,
        config: &mut Config,
        change: impl FnOnce(&mut Config),
    ) -> Result<(), ConfigProblem> {
        let (sections, earlier) = (config.sections.clone(), config.earlier.values()?);
        change(config);
        let changed = config.earlier.values()?;
        for entry in entries() {
            for key in entry.keys {
                let Some(name) = key.earlier else { continue };
                let option = entry.option(key.name);
                if config.sections.get(entry.name, key.name) != sections.get(entry.name, key.name) {
                    self.by_name.push(option.clone());
                }
                if let Some(value) =
                    changed.get(name).filter(|_| changed.get(name) != earlier.get(name))
                {
                    self.by_earlier_name.push(option.clone());
                    config.sections.set(entry.name, key.name, value.clone());
                }
                if self.by_name.contains(&option) && self.by_earlier_name.contains(&option) {
                    let (source, earlier) = (ConfigSource::Code, name.into());
                    return Err(ConfigProblem::SetTwice { source, option, earlier });
                }
            }
        }
        config.earlier = Arc::new(EarlierNames::of(&config.sections));
        Ok(())
    }
}
