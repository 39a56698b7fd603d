//! The handle of a node.

use std::sync::Arc;

use runtime::clock::Clock;
use tinwright::node::v1::image_call::{self, ListAttachments, ListContainers, ListMounts};
use tinwright::node::v1::image_result::{self, Attachments, Containers, Mounts};
use tinwright::node::v1::{ImageCall, ImageResult};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use crate::core::Core;
use crate::create::create;
use crate::definition::{Definition, ObjectType};
use crate::delete::delete;
use crate::error::CallError;
use crate::journal::{Journal, OpenError};
use crate::kernel::Kernel;
use crate::objects::{
    ObjectState, Registry, Snapshot, filter_attachments, filter_containers, filter_mounts,
};
use crate::options::NodeOptions;
use crate::results::Results;
use crate::{calls, collect, containers, reconcile};

/// A node that executes calls of the ImageAPI. A clone is the same node.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) core: Arc<Core>,
    /// Stops the tasks that have no end of their own when the last clone is dropped.
    _stop: Arc<DropGuard>,
}

impl Node {
    /// Opens the journal, and makes the objects in it what the kernel has. Half-made objects are undone and interrupted deletions
    /// finished beside the first calls.
    ///
    /// Wall time comes from `clock`; intervals follow tokio's time.
    ///
    /// # Errors
    /// A journal that cannot be read or written or is damaged, or a kernel that cannot be asked what it has.
    pub async fn open(
        options: NodeOptions,
        kernel: Kernel,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let (journal, table) = Journal::open(&options).await?;
        let mut registry = Registry::new(table.next_id.max(1), options.max_objects);
        let deletions = reconcile::restore(&mut registry, table.objects);
        let records = table.results.into_values().collect();
        let results = Results::new(records, options.max_results, options.result_lifetime);
        let parts = (options, kernel, clock);
        let core = Arc::new(Core::new(parts, (journal, table.name), registry, results));
        let stop = Arc::new(core.stop.clone().drop_guard());
        let reconciled = reconcile::reconcile(&core, deletions).await;
        reconciled.map_err(|error| OpenError::Reconcile(error.to_string()))?;
        core.spawn(collect::run(core.clone()));
        Ok(Self { core, _stop: stop })
    }

    /// Executes `call`.
    ///
    /// A call that changes something is done once for each `call_id`: repeated, it has the result that it had, also after a restart,
    /// as long as the options keep it; if it is under way, both have its result. It goes on if this future is dropped. After
    /// [`NodeOptions::call_timeout`] it fails, and its work is undone. Lists are read anew each time.
    pub async fn call(&self, call_id: Option<&str>, call: ImageCall) -> ImageResult {
        use image_call::Call;
        let (core, id) = (&self.core, call_id);
        let result = match call.call {
            None => Err(CallError::invalid("the call is empty")),
            Some(Call::ListAttachments(list)) => self.list_attachments(&list),
            Some(Call::ListMounts(list)) => self.list_mounts(&list),
            Some(Call::ListContainers(list)) => self.list_containers(&list),
            Some(Call::CreateAttachment(attachment)) => {
                let definition = Definition::Attachment(attachment);
                Ok(calls::run(core, id, |core, call| create(core, call, definition)).await)
            }
            Some(Call::CreateMount(mount)) => {
                let definition = Definition::Mount(mount);
                Ok(calls::run(core, id, |core, call| create(core, call, definition)).await)
            }
            Some(Call::CreateContainer(container)) => {
                let definition = Definition::Container(container);
                Ok(calls::run(core, id, |core, call| create(core, call, definition)).await)
            }
            Some(Call::DeleteAttachment(request)) => {
                let object_type = ObjectType::Attachment;
                Ok(calls::run(core, id, move |core, call| delete(core, call, object_type, request))
                    .await)
            }
            Some(Call::DeleteMount(request)) => {
                let object_type = ObjectType::Mount;
                Ok(calls::run(core, id, move |core, call| delete(core, call, object_type, request))
                    .await)
            }
            Some(Call::SetContainerState(request)) => {
                Ok(calls::run(core, id, |core, call| containers::set_state(core, call, request))
                    .await)
            }
            Some(Call::DeleteContainer(request)) => {
                Ok(calls::run(core, id, |core, call| containers::delete_call(core, call, request))
                    .await)
            }
        };
        result.unwrap_or_else(ImageResult::from)
    }

    /// Returns the result of the call `call_id`, if it has ended and the options still keep it. A call that had not ended when the node was
    /// opened was undone, and has none.
    pub fn result(&self, call_id: &str) -> Option<ImageResult> {
        self.core.lock_results().get(call_id).cloned()
    }

    /// Returns all objects at one moment.
    pub fn snapshot(&self) -> Snapshot {
        self.core.read(Registry::snapshot)
    }

    /// Returns a receiver that sees each change of an object. The number has no meaning but that it grows.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.core.subscribe()
    }

    /// Waits until no object is being created, deleted or collected.
    pub async fn idle(&self) {
        let is_done = |state| matches!(state, ObjectState::Ready | ObjectState::Vanished);
        let all = |registry: &Registry| {
            registry.iter().all(|(_, object)| is_done(object.state) && object.refs() > 0)
        };
        self.core.wait_until(all).await;
    }

    /// Stops the node: attachments, mounts and containers stay as they are. Returns when calls under way have ended.
    pub async fn close(self) {
        self.core.stop.cancel();
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    fn list_attachments(&self, list: &ListAttachments) -> Result<ImageResult, CallError> {
        let attachments = match list.id {
            Some(id) => match self.view(id, ObjectType::Attachment)? {
                Definition::Attachment(attachment) => vec![attachment],
                Definition::Mount(_) | Definition::Container(_) => Vec::new(),
            },
            None => {
                let mut all = self.snapshot().attachments;
                all.retain(|attachment| filter_attachments(attachment, list.kind()));
                all
            }
        };
        Ok(listed(image_result::Result::Attachments(Attachments { attachments })))
    }

    fn list_mounts(&self, list: &ListMounts) -> Result<ImageResult, CallError> {
        let mounts = match list.id {
            Some(id) => match self.view(id, ObjectType::Mount)? {
                Definition::Mount(mount) => vec![mount],
                Definition::Attachment(_) | Definition::Container(_) => Vec::new(),
            },
            None => {
                let mut all = self.snapshot().mounts;
                all.retain(|mount| filter_mounts(mount, list.kind()));
                all
            }
        };
        Ok(listed(image_result::Result::Mounts(Mounts { mounts })))
    }

    fn list_containers(&self, list: &ListContainers) -> Result<ImageResult, CallError> {
        let name = list.name.as_deref().filter(|name| !name.is_empty());
        let containers = if list.id.is_some() || name.is_some() {
            let id = self.core.read(|registry| containers::identify(registry, list.id, name))?;
            match self.view(id, ObjectType::Container)? {
                Definition::Container(container) => vec![container],
                Definition::Attachment(_) | Definition::Mount(_) => Vec::new(),
            }
        } else {
            let mut all = self.snapshot().containers;
            all.retain(|container| filter_containers(container, list.state()));
            all
        };
        Ok(listed(image_result::Result::Containers(Containers { containers })))
    }

    fn view(&self, id: i64, object_type: ObjectType) -> Result<Definition, CallError> {
        self.core.read(|registry| {
            registry.find(id, object_type)?;
            registry.view(id).ok_or_else(|| CallError::not_found(""))
        })
    }
}

const fn listed(result: image_result::Result) -> ImageResult {
    ImageResult { result: Some(result) }
}
