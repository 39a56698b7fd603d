//! The store over gRPC.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, future, stream};
use tinwright::store::v1::store_service_server::{StoreService, StoreServiceServer};
use tinwright::store::v1::{
    BackupRequest, BackupResponse, ResumeImageCollectionRequest, ResumeImageCollectionResponse,
};
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{BackupError, RestoreMark};
use crate::{Revision, Store, records};

/// Chunks that wait for the receiver.
const QUEUED_CHUNKS: usize = 4;

/// The service of the store.
#[derive(Clone)]
pub struct Api {
    store: Arc<dyn Store>,
    images: &'static str,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Backs up the whole of `store`. The service `images` has the images.
    pub fn new(store: Arc<dyn Store>, images: &'static str) -> Self {
        Self { store, images }
    }

    /// Returns the gRPC service.
    pub fn into_service(self) -> StoreServiceServer<Self> {
        StoreServiceServer::new(self)
    }
}

impl StoreService for Api {
    type BackupStream = Pin<Box<dyn Stream<Item = Result<BackupResponse, Status>> + Send>>;

    async fn backup(
        &self,
        request: Request<BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let BackupRequest {} = request.into_inner();
        let (out, chunks) = mpsc::channel(QUEUED_CHUNKS);
        let store = self.store.clone();
        // It ends when the receiver of the chunks is gone.
        let making = tokio::spawn(async move { super::write(&*store, &out).await });
        let chunks =
            ReceiverStream::new(chunks).map(|data| Ok(BackupResponse { data: data.into() }));
        let failure =
            stream::once(making).filter_map(|outcome| future::ready(failure(outcome).map(Err)));
        Ok(Response::new(Box::pin(chunks.chain(failure))))
    }

    #[tracing::instrument(skip_all)]
    async fn resume_image_collection(
        &self,
        request: Request<ResumeImageCollectionRequest>,
    ) -> Result<Response<ResumeImageCollectionResponse>, Status> {
        let ResumeImageCollectionRequest {} = request.into_inner();
        let removed = RestoreMark::new(self.store.clone()).remove(self.images).await;
        let restore_time = removed.map_err(records::Error::from)?.map(Into::into);
        Ok(Response::new(ResumeImageCollectionResponse { restore_time }))
    }
}

/// Returns the status at the end of the stream, if the backup failed and its receiver is not gone.
fn failure(outcome: Result<Result<Revision, BackupError>, JoinError>) -> Option<Status> {
    let error = match outcome {
        Ok(Ok(revision)) => {
            tracing::info!(revision = revision.0, "the store is backed up");
            return None;
        }
        Ok(Err(error)) => error,
        Err(_) => return Some(Status::internal("the backup failed")),
    };
    let status = match &error {
        BackupError::Gone => return None,
        BackupError::Overtaken => Status::aborted(error.to_string()),
        BackupError::Store(_) => Status::unavailable("the store cannot be read"),
    };
    tracing::warn!(error = &error as &dyn std::error::Error, "a backup failed");
    Some(status)
}
