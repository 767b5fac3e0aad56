//! Docker volumes, read and written through a container that mounts the volume and never starts.

use std::io;

use bollard::models::{ContainerCreateBody, HostConfig, MountType};
use bollard::query_parameters::{
    ContainerArchiveInfoOptions, CreateContainerOptions, DownloadFromContainerOptions,
    ListVolumesOptions, UploadToContainerOptions,
};
use bytes::Bytes;
use fiber_core::{Error, Result, random};
use futures_util::StreamExt;
use futures_util::future::{LocalBoxFuture, ready};
use futures_util::stream::{self, BoxStream, LocalBoxStream};

use super::current_container::CurrentContainer;
use super::engine::{Engine, is_missing};
use super::request::mount;
use super::{image, labels};
use crate::cluster::volume::{Volume, VolumeKind, missing};
use crate::{BackendError, JobSpec};

/// An image without files: a container needs one.
const EMPTY: &str = "fiber-auto/empty:1";
/// The mount path of the volume in the container.
const ROOT: &str = "/volume";
/// The bit of Go's file mode for directories.
const DIRECTORY: u32 = 1 << 31;

/// Fails if there is no such volume. The engine would create one for every typing error.
///
/// # Errors
/// It does not exist, with the names of those that do.
pub(super) async fn must_exist(engine: &Engine, claim: &str) -> Result<(), BackendError> {
    match engine.api.inspect_volume(claim).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => {
            let listed = engine.api.list_volumes(None::<ListVolumesOptions>).await;
            let volumes = listed.ok().and_then(|listed| listed.volumes).unwrap_or_default();
            let mut names: Vec<_> = volumes.into_iter().map(|volume| volume.name).collect();
            // The others are anonymous.
            names.retain(|name| name.len() < 64);
            let remedy = format!("correct the name, or create it (`docker volume create {claim}`)");
            Err(missing(claim, &remedy, &names))
        }
        Err(error) => Err(engine.explain(&error)),
    }
}

/// A container that mounts a volume.
#[derive(Debug)]
pub(super) struct Helper<'a> {
    engine: &'a Engine,
    claim: String,
    container: String,
}

impl<'a> Helper<'a> {
    pub(super) async fn start(
        engine: &'a Engine,
        current: Option<&CurrentContainer>,
        claim: &str,
        session: &str,
    ) -> Result<Helper<'a>, BackendError> {
        must_exist(engine, claim).await?;
        make_empty_image(engine).await?;
        // This process owns it: if it is killed, the next sweep removes the container.
        let spec = JobSpec::new(format!("cp {claim}"));
        let body = ContainerCreateBody {
            image: Some(EMPTY.into()),
            entrypoint: Some(vec!["/never-started".into()]),
            labels: Some(labels::labels(session, &spec, current)?),
            host_config: Some(HostConfig {
                network_mode: Some("none".into()),
                mounts: Some(vec![mount(MountType::VOLUME, claim.to_string(), ROOT, false)]),
                ..Default::default()
            }),
            ..Default::default()
        };
        let number = u32::from_le_bytes(random());
        let options = CreateContainerOptions {
            name: Some(format!("fiber-{session}-cp-{number}")),
            ..Default::default()
        };
        let created = engine
            .api
            .create_container(Some(options), body)
            .await
            .map_err(|error| engine.explain(&error))?;
        Ok(Helper { engine, claim: claim.to_string(), container: created.id })
    }

    fn failed(&self, path: &str, error: &bollard::errors::Error) -> Error {
        let what = format!("`{}:{path}`", self.claim);
        if is_missing(error) {
            Error::system(what, "there is no such file")
        } else {
            Error::system(what, self.engine.explain(error))
        }
    }
}

fn inside(path: &str) -> String {
    format!("{ROOT}/{}", path.trim_start_matches('/'))
}

impl Volume for Helper<'_> {
    fn kind<'a>(&'a self, path: &'a str) -> LocalBoxFuture<'a, Result<Option<VolumeKind>>> {
        Box::pin(async move {
            let options = ContainerArchiveInfoOptions { path: inside(path) };
            match self.engine.api.get_container_archive_info(&self.container, Some(options)).await {
                Ok(found) if found.file_mode & DIRECTORY != 0 => Ok(Some(VolumeKind::Directory)),
                Ok(_) => Ok(Some(VolumeKind::File)),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(self.failed(path, &error)),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> LocalBoxStream<'a, Result<Bytes>> {
        let options = DownloadFromContainerOptions { path: inside(path) };
        let archive = self.engine.api.download_from_container(&self.container, Some(options));
        archive.map(move |part| part.map_err(|error| self.failed(path, &error))).boxed_local()
    }

    fn write<'a>(
        &'a self,
        directory: &'a str,
        archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let options =
                UploadToContainerOptions { path: inside(directory), ..Default::default() };
            let body = bollard::body_try_stream(archive);
            let written =
                self.engine.api.upload_to_container(&self.container, Some(options), body).await;
            written.map_err(|error| self.failed(directory, &error))
        })
    }
}

async fn make_empty_image(engine: &Engine) -> Result<(), BackendError> {
    if image::details(engine, EMPTY).await?.is_some() {
        return Ok(());
    }
    let archive = tar::Builder::new(Vec::new()).into_inner().map_err(|error| error.to_string())?;
    image::import(engine, EMPTY, stream::once(ready(Ok(archive.into())))).await
}
