//! Calls that create, change and delete objects.

use runtime::{Clock, access};
use store::records::requests::IdempotentRequest;
use store::records::{self, Change, Kind, Records};
use store::serving;
use tinwright::common::v1::View;
use tinwright::requests::{CreateRequest, DeleteRequest, UpdateRequest};
use tinwright::status::Violations;
use tinwright::{Object, Stored as _, field_mask};
use tonic::{Request, Response, Status};

use crate::read::Served;
use crate::viewer::Viewer;

/// The record of the noun `N`.
type Record<N> = <<N as Noun>::Kind as Kind>::Record;
/// The id of the noun `N`.
type Id<N> = <<N as Noun>::Kind as Kind>::Id;

/// A noun of a service.
pub trait Noun: Clone + Send + Sync + 'static {
    /// The kind of the records.
    type Kind: Served<Id: Send + Sync>;
    /// An error of the functions.
    type Error: From<records::Error> + From<Violations> + Into<Status> + Send + 'static;

    /// Returns the records.
    fn records(&self) -> &Records<Self::Kind>;
}

/// A noun whose objects callers create and change. What differs between nouns are hooks, or a
/// function of their own in place of a provided one.
pub trait Edit: Noun<Kind: Kind<Record: Object>> {
    /// Returns the clock for the times in records.
    fn clock(&self) -> &Clock;

    /// Returns `object` in its stored form, if its fields are valid. `old` is the stored object in
    /// an update.
    fn checked(
        &self,
        object: Record<Self>,
        old: Option<&Record<Self>>,
    ) -> Result<Record<Self>, Violations>;

    /// Checks the new `object` against other records, and returns what is committed with it.
    fn before_create(
        &self,
        _object: &mut Record<Self>,
    ) -> impl Future<Output = Result<Change, Self::Error>> + Send {
        async { Ok(Change::default()) }
    }

    /// Checks the new `object` once it is stored. A hook that fails deletes it again.
    fn after_create(
        &self,
        _object: &Record<Self>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async { Ok(()) }
    }

    /// Checks an update of `old` to `new` against other records, and returns what is committed with
    /// it.
    fn before_update(
        &self,
        _old: &Record<Self>,
        _new: &Record<Self>,
    ) -> impl Future<Output = Result<Change, Self::Error>> + Send {
        async { Ok(Change::default()) }
    }

    /// Stores a new object. A repeated `request` returns the first result.
    fn create(
        &self,
        object: Record<Self>,
        request: Option<IdempotentRequest>,
    ) -> impl Future<Output = Result<Record<Self>, Self::Error>> + Send {
        async move {
            let mut object = self.checked(object, None)?;
            let field = format!("{}.id", Record::<Self>::FIELD);
            object.initialize(&field, self.clock().wall())?;
            if let Some(made) = self.records().previous_result(request.as_ref()).await? {
                return Ok(made);
            }
            let more = self.before_create(&mut object).await?;
            let created = self.records().create(&object, more, request.as_ref()).await?;
            self.after_create(&created).await?;
            Ok(created)
        }
    }

    /// Replaces the fields of an object that `paths` name. Nothing is written if they are equal.
    fn update(
        &self,
        mut update: Record<Self>,
        paths: &[String],
    ) -> impl Future<Output = Result<Record<Self>, Self::Error>> + Send {
        async move {
            let revision = *update.revision_mut();
            let old = self.records().at(update.id(), revision).await?;
            let mut new = self.checked(field_mask::merge(&old, &update, paths)?, Some(&old))?;
            if new == old {
                return Ok(old);
            }
            new.set_updated(self.clock().wall().into());
            self.replace(old, new).await
        }
    }

    /// Replaces `old` by `new` in the store.
    fn replace(
        &self,
        old: Record<Self>,
        new: Record<Self>,
    ) -> impl Future<Output = Result<Record<Self>, Self::Error>> + Send {
        async move {
            let more = self.before_update(&old, &new).await?;
            Ok(self.records().replace_with(&old, new, more).await?)
        }
    }
}

/// A noun whose objects callers delete.
pub trait Delete: Noun {
    /// Checks whether `old` may be deleted, and returns what is committed with its deletion.
    fn before_delete(
        &self,
        _old: &Record<Self>,
    ) -> impl Future<Output = Result<Change, Self::Error>> + Send {
        async { Ok(Change::default()) }
    }

    /// Deletes the object `id`, which has to be at `revision` unless that is 0.
    fn delete(
        &self,
        id: Id<Self>,
        revision: i64,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        async move {
            let old = self.records().at(&id.to_string(), revision).await?;
            let more = self.before_delete(&old).await?;
            self.records().commit(self.records().to_delete(&old).and(more)).await?;
            Ok(())
        }
    }
}

/// Creates the object of `request`.
pub async fn create<N, R>(noun: &N, request: Request<R>) -> Result<Response<R::Response>, Status>
where
    N: Edit,
    R: CreateRequest<Object = Record<N>>,
{
    let caller = access::request_scope(&request);
    let viewer = Viewer::of(&request, View::Basic)?;
    let request = request.into_inner();
    let idempotent = serving::idempotent(&caller, request.request_id(), &request)?;
    let object = Violations::require(R::FIELD, request.into_object())?;
    let created = noun.create(object, idempotent).await.map_err(Into::into)?;
    Ok(Response::new(N::Kind::show(&viewer, created).into()))
}

/// Replaces fields of an object as `request` wants. The work goes on if the caller goes away.
pub async fn update<N, R>(noun: &N, request: Request<R>) -> Result<Response<R::Response>, Status>
where
    N: Edit,
    R: UpdateRequest<Object = Record<N>>,
{
    let viewer = Viewer::of(&request, View::Basic)?;
    let (update, paths) = request.into_inner().into_update();
    let mut update = Violations::require(R::FIELD, update)?;
    let id: Id<N> = Violations::parse(&format!("{}.id", R::FIELD), update.id_mut())?;
    *update.id_mut() = id.to_string();
    let noun = noun.clone();
    let work = async move { noun.update(update, &paths).await.map_err(Into::into) };
    let updated = serving::to_the_end(work).await?;
    Ok(Response::new(N::Kind::show(&viewer, updated).into()))
}

/// Deletes the object that `request` names. The work goes on if the caller goes away.
pub async fn delete<N, R>(noun: &N, request: Request<R>) -> Result<Response<R::Response>, Status>
where
    N: Delete,
    R: DeleteRequest,
{
    let (id, revision) = request.into_inner().into_id();
    let id: Id<N> = Violations::parse(R::FIELD, &id)?;
    let noun = noun.clone();
    let work = async move { noun.delete(id, revision).await.map_err(Into::into) };
    serving::to_the_end(work).await?;
    Ok(Response::new(R::Response::default()))
}
