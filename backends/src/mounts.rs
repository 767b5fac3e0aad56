//! Mounts of containers, as the configuration lists them.

use fiber_core::{Config, ConfigProblem};

/// An entry of `mounts`: `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountSpec {
    pub(crate) source: MountSource,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MountSource {
    /// A path of the host on which the container runs.
    Path(String),
    /// A volume by name; on Kubernetes, a persistent volume claim.
    Volume(String),
}

impl MountSpec {
    /// Parses all mounts of the configuration.
    ///
    /// # Errors
    /// The entry that is invalid, and the right form.
    pub(crate) fn all(config: &Config) -> Result<Vec<MountSpec>, ConfigProblem> {
        config.mounts.iter().map(|text| MountSpec::parse(text)).collect()
    }

    fn parse(text: &str) -> Result<MountSpec, ConfigProblem> {
        let wrong = || {
            ConfigProblem::element(
                "mounts",
                text,
                "each must be SOURCE:TARGET or SOURCE:TARGET:ro, where SOURCE is an absolute path \
                 or the name of a volume, and TARGET an absolute path",
            )
        };
        let mut parts = text.split(':');
        let (Some(source), Some(target), mode, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let read_only = match mode {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(_) => return Err(wrong()),
        };
        if source.is_empty() || source.starts_with('.') || !target.starts_with('/') {
            return Err(wrong());
        }
        let source = match source.starts_with('/') {
            true => MountSource::Path(source.to_string()),
            false => MountSource::Volume(source.to_string()),
        };
        Ok(MountSpec { source, target: target.to_string(), read_only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_a_path_or_a_volume() {
        let path = MountSpec::parse("/data:/mnt:ro").unwrap();
        assert_eq!(
            path,
            MountSpec {
                source: MountSource::Path("/data".into()),
                target: "/mnt".into(),
                read_only: true
            }
        );
        let volume = MountSpec::parse("cache:/mnt").unwrap();
        assert_eq!(
            volume,
            MountSpec {
                source: MountSource::Volume("cache".into()),
                target: "/mnt".into(),
                read_only: false
            }
        );
        for wrong in ["/data", "data:mnt", "./data:/mnt", "/data:/mnt:often", "/a:/b:ro:x", ":/mnt"]
        {
            assert!(MountSpec::parse(wrong).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }
}
