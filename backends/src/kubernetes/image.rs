//! The image of a process's pods: the configured one, that of its own pod, or one built of the
//! program.

use fiber_core::Config;

use super::current_pod::CurrentPod;
use crate::BackendError;
use crate::docker::{self, ContainerImage};
use crate::progress::Progress;

/// The image of pods, with what a pod needs to run the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct PodImage {
    /// Its name, by which nodes pull it.
    pub name: String,
    /// The program's path in the image, if not the image's entry point.
    pub program: Option<String>,
    /// The user to run as, if not the image's own.
    pub user: Option<String>,
    /// Environment variables that the program needs.
    pub environment: Vec<(String, String)>,
    /// The `imagePullPolicy` of the container.
    pub pull_policy: Option<String>,
}

impl PodImage {
    /// Returns an image of the program, or of a `program` in it.
    pub(crate) fn named(name: impl Into<String>, program: Option<String>) -> PodImage {
        PodImage { name: name.into(), program, ..Default::default() }
    }
}

impl From<ContainerImage> for PodImage {
    fn from(made: ContainerImage) -> PodImage {
        PodImage {
            name: made.name,
            program: Some(made.program),
            user: made.user,
            environment: made.environment,
            pull_policy: None,
        }
    }
}

/// Returns the image to use, after building it if necessary.
///
/// # Errors
/// The reason, with a remedy.
pub(super) async fn find(
    config: &Config,
    own: Option<&CurrentPod>,
    progress: &dyn Progress,
) -> Result<PodImage, BackendError> {
    match (&config.image, own) {
        (Some(name), _) => Ok(PodImage::named(name, config.program.clone())),
        (None, Some(own)) => same_as_own(config, own),
        (None, None) => built_of_this_program(config, progress).await,
    }
}

fn same_as_own(config: &Config, own: &CurrentPod) -> Result<PodImage, BackendError> {
    let missing =
        |what: &str| format!("the {what} of this process's own pod is unknown: set `image`");
    let container = own.container().ok_or_else(|| missing("container"))?;
    let name = container.image.clone().ok_or_else(|| missing("image"))?;
    let path =
        fiber_core::executable_name().ok().and_then(|path| path.to_str().map(str::to_string));
    let program = config.program.clone().or(path).ok_or_else(|| missing("program"))?;
    let library_path =
        std::env::var("LD_LIBRARY_PATH").ok().map(|path| ("LD_LIBRARY_PATH".to_string(), path));
    Ok(PodImage {
        name,
        program: Some(program),
        user: None,
        environment: library_path.into_iter().collect(),
        pull_policy: container.image_pull_policy.clone(),
    })
}

async fn built_of_this_program(
    config: &Config,
    progress: &dyn Progress,
) -> Result<PodImage, BackendError> {
    let made = docker::image_of_this_program(config, progress).await.map_err(|problem| {
        format!(
            "no image of this program can be built for pods, and `image` (FIBER_IMAGE) names \
                 none: {problem}"
        )
    })?;
    Ok(made.into())
}
