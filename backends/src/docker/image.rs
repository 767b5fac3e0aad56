//! The image of a process's containers: the configured one, that of its own container, or one built
//! of the program.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use bollard::models::ImageInspect;
use bollard::query_parameters::{CreateImageOptions, ListImagesOptions, TagImageOptions};
use bytes::Bytes;
use bytesize::ByteSize;
use fiber_core::{Config, on_a_thread};
use futures_util::{Stream, StreamExt};
use tokio::time::timeout;

use super::bundle::Bundle;
use super::cli;
use super::current_container::CurrentContainer;
use super::engine::{Engine, found};
use crate::BackendError;
use crate::progress::Progress;

/// The repository of images built of programs: `fiber-auto/<program>:<build id>`, with a
/// hash of other programs in it.
const REPOSITORY: &str = "fiber-auto";
/// The repository of images built from Dockerfiles: `fiber-dockerfile/<directory>:latest`.
const DOCKERFILES: &str = "fiber-dockerfile";
/// The number of builds to keep of each program.
const KEEP: usize = 3;

/// An image, with what a container of it needs to run the program.
#[derive(Clone, Debug)]
pub(crate) struct ContainerImage {
    /// Its name, for messages.
    pub(crate) name: String,
    pub(super) id: String,
    /// The program's path in the image.
    pub(crate) program: String,
    /// The user to run as, if not the image's own.
    pub(crate) user: Option<String>,
    /// Environment variables that the program needs.
    pub(crate) environment: Vec<(String, String)>,
}

/// Returns the image to use, after pulling or building it if necessary.
///
/// # Errors
/// The reason, with a remedy.
pub(super) async fn find(
    engine: &Engine,
    config: &Config,
    current: Option<&CurrentContainer>,
    progress: &dyn Progress,
) -> Result<ContainerImage, BackendError> {
    match (&config.image, current) {
        (Some(name), _) => configured(engine, config, name, progress).await,
        (None, Some(current)) => same_as_own(config, current),
        (None, None) => {
            let programs = config.bundle.clone();
            let bundle = on_a_thread(move || {
                Bundle::of_this_program().and_then(|bundle| bundle.with(&programs))
            });
            let bundle = bundle.await.map_err(|error| error.to_string())?;
            let bundle = bundle.map_err(|problem| {
                format!(
                    "no image of this program can be built: {problem} (set `image`, or \
                     FIBER_IMAGE, to an existing one)"
                )
            })?;
            build_from_bundle(engine, &bundle, progress).await
        }
    }
}

async fn configured(
    engine: &Engine,
    config: &Config,
    name: &str,
    progress: &dyn Progress,
) -> Result<ContainerImage, BackendError> {
    let details = ensure_pulled(engine, config, name, progress).await?;
    let settings = details.config.unwrap_or_default();
    let entry = settings
        .entrypoint
        .unwrap_or_default()
        .into_iter()
        .chain(settings.cmd.unwrap_or_default())
        .next();
    let program = config.program.clone().or(entry).ok_or_else(|| {
        format!(
            "the image `{name}` does not say what to run: give it an ENTRYPOINT, or set `program` \
             to the program's path"
        )
    })?;
    let id = details.id.unwrap_or_else(|| name.to_string());
    Ok(ContainerImage { name: name.to_string(), id, program, user: None, environment: Vec::new() })
}

/// Returns the details of an image, if the engine has it.
///
/// # Errors
/// The engine does not answer.
pub(super) async fn details(
    engine: &Engine,
    name: &str,
) -> Result<Option<ImageInspect>, BackendError> {
    found(engine.api.inspect_image(name).await).map_err(|error| engine.explain(&error))
}

/// Makes an image of the files in a tar archive.
///
/// # Errors
/// The reason why the engine can't make it.
pub(super) async fn import(
    engine: &Engine,
    name: &str,
    archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Result<(), BackendError> {
    let (repository, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
    let options = CreateImageOptions {
        from_src: Some("-".into()),
        repo: Some(repository.into()),
        tag: Some(tag.into()),
        ..Default::default()
    };
    let body = bollard::body_try_stream(archive);
    let mut steps = Box::pin(engine.api.create_image(Some(options), Some(body), None));
    while let Some(step) = steps.next().await {
        step.map_err(|error| {
            format!("the image {name} could not be built: {}", engine.explain(&error))
        })?;
    }
    Ok(())
}

/// Returns the details of an image, after pulling it if the engine does not have it.
///
/// # Errors
/// The reason, with a remedy.
pub(super) async fn ensure_pulled(
    engine: &Engine,
    config: &Config,
    name: &str,
    progress: &dyn Progress,
) -> Result<ImageInspect, BackendError> {
    if let Some(details) = details(engine, name).await? {
        return Ok(details);
    }
    let limit = config.pull_timeout;
    timeout(limit, pull(engine, name, progress)).await.map_err(|_| {
        BackendError::TimedOut(format!(
            "the image `{name}` was not pulled within {limit:?} (`pull_timeout` sets the limit)"
        ))
    })??;
    engine.api.inspect_image(name).await.map_err(|error| engine.explain(&error))
}

async fn pull(engine: &Engine, name: &str, progress: &dyn Progress) -> Result<(), BackendError> {
    let step = progress.begin(&format!("pulling the image {name}"));
    // Without a tag, the engine would pull all tags.
    let tagged =
        name.rsplit('/').next().is_some_and(|last| last.contains(':') || last.contains('@'));
    let options = CreateImageOptions {
        from_image: Some(name.to_string()),
        tag: (!tagged).then(|| "latest".to_string()),
        ..Default::default()
    };
    let mut steps = Box::pin(engine.api.create_image(Some(options), None, None));
    while let Some(step) = steps.next().await {
        step.map_err(|error| {
            format!(
                "the Docker host has no image `{name}`, and it can't be pulled: {}. Build it, run \
                 `docker pull {name}`, correct `image` (FIBER_IMAGE), or leave that out to have an \
                 image of this program built",
                engine.explain(&error)
            )
        })?;
    }
    step.done();
    Ok(())
}

fn same_as_own(
    config: &Config,
    current: &CurrentContainer,
) -> Result<ContainerImage, BackendError> {
    let missing =
        |what: &str| format!("the {what} of this process's own container is unknown: set `image`");
    let id = current.details.image.clone().ok_or_else(|| missing("image"))?;
    let name = current
        .details
        .config
        .as_ref()
        .and_then(|config| config.image.clone())
        .unwrap_or_else(|| id.clone());
    let program = match &config.program {
        Some(program) => program.clone(),
        None => {
            let path = fiber_core::executable_name().map_err(|error| error.to_string())?;
            path.to_str().ok_or_else(|| missing("program"))?.to_string()
        }
    };
    let library_path =
        std::env::var("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH".to_string(), path));
    Ok(ContainerImage {
        name,
        id,
        program,
        user: Some(this_user()),
        environment: library_path.into_iter().collect(),
    })
}

/// Returns this process's user and group, so files that containers write to mounts belong to the
/// same user as without containers.
fn this_user() -> String {
    format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// Returns the image of a program and its libraries: an earlier one of the same build, or a new
/// one.
///
/// # Errors
/// The reason why the engine can't build or run it.
pub(super) async fn build_from_bundle(
    engine: &Engine,
    bundle: &Bundle,
    progress: &dyn Progress,
) -> Result<ContainerImage, BackendError> {
    if let (Some(machine), Some(host)) = (bundle.machine, engine.architecture.as_deref())
        && machine != host
    {
        return Err(refused!(
            "`{}` is for {machine}, but the Docker host has another architecture ({host}): build \
             it for that one",
            bundle.name
        ));
    }
    let program = repository_name(&bundle.name);
    let tag = bundle.tag(&program);
    let repository = format!("{REPOSITORY}/{program}");
    let name = format!("{repository}:{tag}");
    let image = |id: Option<String>| ContainerImage {
        id: id.unwrap_or_else(|| name.clone()),
        name: name.clone(),
        program: bundle.program(),
        user: Some(this_user()),
        environment: bundle.environment(),
    };
    if let Some(found) = details(engine, &name).await? {
        return Ok(image(found.id));
    }
    let step = progress.begin(&format!("building the image {name} ({})", ByteSize(bundle.bytes)));
    import(engine, &name, bundle.tar()).await?;
    step.done();
    let found = engine.api.inspect_image(&name).await.map_err(|error| engine.explain(&error))?;
    remove_old(engine, &repository).await;
    Ok(image(found.id))
}

/// Returns the name of the image built from a Dockerfile, which is that of the file's directory.
pub(super) fn name_of_dockerfile(file: &Path) -> String {
    let path = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let directory = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    format!("{DOCKERFILES}/{}:latest", repository_name(&directory))
}

/// Pushes a local image to the registry, if one is configured, and returns the image's name there.
///
/// # Errors
/// The registry's message, with a remedy.
pub(super) async fn publish(
    engine: &Engine,
    name: &str,
    registry: Option<&str>,
    progress: &dyn Progress,
) -> Result<String, BackendError> {
    let Some(registry) = registry else { return Ok(name.to_string()) };
    let (repository, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
    let repository = format!("{}/{repository}", registry.trim_end_matches('/'));
    let published = format!("{repository}:{tag}");
    let options = TagImageOptions { repo: Some(repository.clone()), tag: Some(tag.to_string()) };
    let tagged = engine.api.tag_image(name, Some(options)).await;
    tagged.map_err(|error| {
        format!(
            "`registry` is `{registry}`, which the Docker engine does not accept: {}",
            engine.explain(&error)
        )
    })?;
    match cli::push(engine, &published, progress).await {
        Ok(()) => {
            remove_old(engine, &repository).await;
            Ok(published)
        }
        Err(problem) => {
            untag(engine, &published).await;
            Err(problem)
        }
    }
}

/// Removes images of older builds, except the newest ones and those in use.
async fn remove_old(engine: &Engine, repository: &str) {
    let filters = HashMap::from([("reference".to_string(), vec![repository.to_string()])]);
    let options = ListImagesOptions { filters: Some(filters), ..Default::default() };
    let Ok(mut images) = engine.api.list_images(Some(options)).await else { return };
    images.sort_by_key(|image| std::cmp::Reverse(image.created));
    for name in images.iter().skip(KEEP).flat_map(|image| &image.repo_tags) {
        untag(engine, name).await;
    }
}

/// Removes a tag of an image, and the image itself if that was its last tag and no container uses
/// it.
pub(super) async fn untag(engine: &Engine, name: &str) {
    if let Err(error) = engine
        .api
        .remove_image(name, None::<bollard::query_parameters::RemoveImageOptions>, None)
        .await
    {
        tracing::debug!("the image {name} is kept: {}", engine.explain(&error));
    }
}

/// Returns a program's name as a repository name: in lower case, without the hash that cargo
/// appends to tests.
fn repository_name(program: &str) -> String {
    let name = match program.rsplit_once('-') {
        Some((name, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => program,
    };
    let plain = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect::<String>();
    // Separators may neither repeat nor stand at an end.
    let parts: Vec<_> = plain.split('_').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "program".into() } else { parts.join("_") }
}

#[cfg(test)]
mod tests {
    use super::repository_name;

    #[test]
    fn program_names_become_valid_repository_names() {
        assert_eq!(repository_name("pi_estimation"), "pi_estimation");
        assert_eq!(repository_name("pool-0123456789abcdef"), "pool");
        assert_eq!(repository_name("My Program__2-x"), "my_program_2_x");
        assert_eq!(repository_name("__"), "program");
    }
}
