//! The image that pods are made from: the one that is configured, that of this process's own pod,
//! or one that is made of this program.

use fiber_core::Config;

use super::current_pod::CurrentPod;
use crate::docker;
use crate::progress::Progress;

/// What pods are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodImage {
    /// Its name, as nodes fetch it.
    pub name: String,
    /// The program's path in it, if it is not the image's entry point.
    pub program: Option<String>,
    /// The user to run it as, if it is not the image's own.
    pub user: Option<String>,
    /// What the program needs in its environment.
    pub environment: Vec<(String, String)>,
    /// When nodes fetch it: Kubernetes' own words.
    pub pull_policy: Option<String>,
}

impl PodImage {
    /// One that was built for the program, or for a `program` in it.
    pub fn named(name: impl Into<String>, program: Option<String>) -> PodImage {
        PodImage { name: name.into(), program, ..Default::default() }
    }
}

/// # Errors
/// Why there is none, and what to do.
pub(super) async fn find(
    config: &Config,
    own: Option<&CurrentPod>,
    progress: &dyn Progress,
) -> Result<PodImage, String> {
    match (&config.image, own) {
        (Some(name), _) => Ok(PodImage::named(name, config.program.clone())),
        (None, Some(own)) => same_as_own(config, own),
        (None, None) => made_of_this_program(config, progress).await,
    }
}

fn same_as_own(config: &Config, own: &CurrentPod) -> Result<PodImage, String> {
    let missing =
        |what: &str| format!("this process's own pod has no {what} that is known: set `image`");
    let container = own.container().ok_or_else(|| missing("container"))?;
    let name = container.image.clone().ok_or_else(|| missing("image"))?;
    let path = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_string));
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

async fn made_of_this_program(
    config: &Config,
    progress: &dyn Progress,
) -> Result<PodImage, String> {
    let made = docker::image_of_this_program(config, progress).await.map_err(|problem| {
        format!("no image of this program can be made for pods, and `image` (FIBER_IMAGE) names none: {problem}")
    })?;
    let environment = made.environment.iter().filter_map(|variable| variable.split_once('='));
    Ok(PodImage {
        name: made.name,
        program: Some(made.program),
        user: made.user,
        environment: environment
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        pull_policy: None,
    })
}
