//! Calls that read objects.

use store::mirror::Mirror;
use store::records::{Kind, RecordSource, Records, Selector};
use store::serving;
use tinwright::common::v1::View;
use tinwright::requests::{By, Filter, GetRequest, ListRequest, Page, WatchRequest};
use tinwright::secret::Sealable as _;
use tinwright::status::Violations;
use tinwright::watch::WatchResponse;
use tinwright::{Attributes, HardwareId, Stored as _, check};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::viewer::Viewer;

/// A kind of records that callers read.
pub trait Served: Kind<Record: Attributes + Send + Sync> {
    /// The unique index of names; empty if objects are not found by name.
    const NAME_INDEX: &'static str = "";

    /// Returns a name as the index has it, or why it is none.
    fn indexed_name(name: String) -> Result<String, String> {
        check::label(&name).map_err(|error| error.to_string())
    }

    /// True if `viewer` may see `object`; by the option `tenant_rule` of the noun.
    fn is_visible(viewer: &Viewer, object: &Self::Record) -> bool {
        object.is_visible_to(viewer.tenant.as_ref())
    }

    /// Returns an index, and the value that all objects have in it which pass `filter`: a list reads
    /// these objects only.
    fn index_of(_filter: &impl Filter) -> Option<(&'static str, String)> {
        None
    }

    /// Returns what `viewer` sees of `object`; secrets are in the full view only.
    fn show(viewer: &Viewer, mut object: Self::Record) -> Self::Record {
        if viewer.view != View::Full {
            drop(object.take_secrets());
        }
        object
    }
}

/// Returns the object that `request` names by its id or its name, as the caller sees it.
pub async fn get<K, R>(
    records: &Records<K>,
    request: Request<R>,
) -> Result<Response<R::Response>, Status>
where
    K: Served,
    R: GetRequest<Object = K::Record>,
{
    let viewer = Viewer::of(&request, request.get_ref().wanted_view())?;
    let by = request.into_inner().by();
    let selector = match by {
        None => return Err(Violations::single("by", "is missing: set id or name").into()),
        Some(By::Id(id)) => Selector::Id(Violations::parse::<K::Id>("id", &id)?.to_string()),
        Some(By::Name(name)) => {
            let name = K::indexed_name(name).map_err(|error| Violations::single("name", error))?;
            Selector::Index(K::NAME_INDEX, name)
        }
    };
    let found = records.select(&selector).await?;
    if !K::is_visible(&viewer, &found) {
        return Err(selector.missing(K::NOUN).into());
    }
    Ok(Response::new(K::show(&viewer, found).into()))
}

/// Returns the page of objects of `source` that `request` wants, as the caller sees them.
pub async fn list<K, R>(
    source: &impl RecordSource<K>,
    request: Request<R>,
) -> Result<Response<R::Response>, Status>
where
    K: Served,
    R: ListRequest<Object = K::Record>,
{
    list_where(source, request, |_, _| true).await
}

/// Returns a page as [`list`] does, with the objects that also pass `keep`.
pub async fn list_where<K, R>(
    source: &impl RecordSource<K>,
    request: Request<R>,
    keep: impl Fn(&R, &K::Record) -> bool,
) -> Result<Response<R::Response>, Status>
where
    K: Served,
    R: ListRequest<Object = K::Record>,
{
    let viewer = Viewer::of(&request, request.get_ref().wanted_view())?;
    check_filter(request.get_ref())?;
    let request = request.into_inner();
    let keeps =
        |object: &K::Record| keep(&request, object) && passes::<K>(&viewer, &request, object);
    let size = serving::page_size(request.page_size())?;
    let listing = match K::index_of(&request) {
        None => source.records().list_from(source, request.page_token(), size, keeps).await?,
        Some((index, value)) => {
            let records = source.records();
            records.list_indexed(index, &value, request.page_token(), size, keeps).await?
        }
    };
    let objects = listing.records.into_iter().map(|object| K::show(&viewer, object)).collect();
    let next_page_token = listing.next.unwrap_or_default();
    Ok(Response::new(Page { objects, next_page_token }.into()))
}

/// Streams the objects of `mirror` that `request` wants, and their changes, as the caller sees them,
/// until `stop`. An object that does not pass the filter any more is sent as deleted, and one that
/// begins to pass it as new.
pub fn watch<K, R>(
    mirror: &Mirror<K>,
    stop: &CancellationToken,
    request: Request<R>,
) -> Result<Response<serving::Events<R::Response>>, Status>
where
    K: Served,
    R: WatchRequest<Response: WatchResponse<Object = K::Record>> + Clone,
{
    let viewer = Viewer::of(&request, request.get_ref().wanted_view())?;
    check_filter(request.get_ref())?;
    let request = request.into_inner();
    let filter = filter::<K>(&viewer, &request);
    let show = move |object| K::show(&viewer, object);
    serving::watch_filtered(mirror, request.id(), stop, filter, show)
}

/// Returns the filter of the watch that `viewer` requests; none if it wants, and may see, all.
pub fn filter<K: Served>(
    viewer: &Viewer,
    request: &(impl WatchRequest + Clone),
) -> Option<serving::Filter<K::Record>> {
    if viewer.tenant.is_none() && request.is_empty() {
        return None;
    }
    let viewer = viewer.clone();
    let request = request.clone();
    Some(Box::new(move |object| passes::<K>(&viewer, &request, object)))
}

/// Passes if the values of `filter` have a valid form.
pub fn check_filter(filter: &impl Filter) -> Result<(), Violations> {
    match filter.hardware_id() {
        "" => Ok(()),
        id => Violations::parse::<HardwareId>("hardware_id", id).map(drop),
    }
}

/// True if `viewer` may see `object`, and what it sees of it passes `filter`.
pub fn passes<K: Served>(viewer: &Viewer, filter: &impl Filter, object: &K::Record) -> bool {
    let keeps = || match viewer.tenant {
        // Nothing by which a filter compares is hidden from others.
        None => filter.keeps(object),
        Some(_) => filter.keeps(&K::show(viewer, object.clone())),
    };
    K::is_visible(viewer, object) && (filter.is_empty() || keeps())
}
