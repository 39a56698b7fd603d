//! A noun in a store in memory, as callers with and without a tenant use it.

use std::sync::Arc;

use runtime::{Caller, Clock, Role};
use store::ScopedStore;
use store::memory::MemoryStore;
use store::mirror::Mirror;
use store::records::{self, Index, Kind, Records};
use store::serving::Events;
use tinwright::TemplateId;
use tinwright::object::Labels;
use tinwright::status::Violations;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tinwright::workflow::v1 as pb;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status};

use super::*;

#[derive(Debug)]
enum TemplateKind {}

impl Kind for TemplateKind {
    type Record = pb::Template;
    type Id = TemplateId;
    const KIND: &'static str = "template";
    const INDEXES: &'static [&'static str] = &["template-name"];

    fn indexes(template: &pb::Template) -> Vec<Index> {
        vec![Index::unique("template-name", &template.name)]
    }
}

impl Served for TemplateKind {
    const NAME_INDEX: &'static str = "template-name";

    /// Callers with a tenant do not see labels.
    fn show(viewer: &Viewer, mut template: pb::Template) -> pb::Template {
        if viewer.tenant.is_some() {
            template.labels.clear();
        }
        template
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Records(#[from] records::Error),
    #[error(transparent)]
    Invalid(#[from] Violations),
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Records(error) => error.into(),
            Error::Invalid(error) => error.into(),
        }
    }
}

#[derive(Clone)]
struct Templates {
    records: Records<TemplateKind>,
    clock: Clock,
}

impl Noun for Templates {
    type Kind = TemplateKind;
    type Error = Error;

    fn records(&self) -> &Records<TemplateKind> {
        &self.records
    }
}

impl Edit for Templates {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(
        &self,
        template: pb::Template,
        _: Option<&pb::Template>,
    ) -> Result<pb::Template, Violations> {
        match template.name.as_str() {
            "" => Err(Violations::single("template.name", "is missing")),
            _ => Ok(template),
        }
    }
}

impl Delete for Templates {}

fn templates() -> Templates {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "workflow");
    Templates { records: Records::new(store), clock: Clock::system() }
}

/// A template of `tenant` in the rack r1.
fn template(name: &str, tenant: &str) -> pb::Template {
    let labels = racks("r1");
    pb::Template { name: name.into(), tenant: tenant.into(), labels, ..Default::default() }
}

fn racks(rack: &str) -> Labels {
    [("rack".to_owned(), rack.to_owned())].into()
}

fn of_acme<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    let caller = Caller::from(Role::Operator).with_tenant("acme".parse().unwrap()).unwrap();
    request.extensions_mut().insert(caller);
    request
}

async fn create(templates: &Templates, template: pb::Template) -> pb::Template {
    let request = pb::CreateTemplateRequest { template: Some(template), ..Default::default() };
    let created = super::create(templates, Request::new(request)).await.unwrap();
    created.into_inner().template.unwrap()
}

/// The names of the templates that a list has.
async fn names(templates: &Templates, request: Request<pb::ListTemplatesRequest>) -> Vec<String> {
    let page = list(&templates.records, request).await.unwrap().into_inner();
    page.templates.into_iter().map(|it| it.name).collect()
}

#[tokio::test]
async fn an_object_is_created_once_for_a_request_changed_by_a_mask_and_deleted_at_its_revision() {
    let templates = templates();
    let request =
        pb::CreateTemplateRequest { template: Some(template("a", "")), request_id: "r".into() };
    let mut made = Vec::new();
    for _ in 0..2 {
        let created = super::create(&templates, Request::new(request.clone())).await.unwrap();
        made.extend(created.into_inner().template);
    }
    assert_eq!(made[0], made[1]);
    let template = Some(pb::Template { data: "x".into(), ..made[0].clone() });
    let update_mask = Some(prost_types::FieldMask { paths: vec!["data".into()] });
    let request = pb::UpdateTemplateRequest { template, update_mask };
    let updated = update(&templates, Request::new(request)).await.unwrap().into_inner();
    let updated = updated.template.unwrap();
    assert_eq!((updated.name.as_str(), updated.data.as_str()), ("a", "x"));
    let delete_at = async |revision| {
        let request =
            pb::DeleteTemplateRequest { id: updated.id.clone(), revision, ..Default::default() };
        delete(&templates, Request::new(request)).await.map(drop)
    };
    assert_eq!(delete_at(made[0].revision).await.unwrap_err().code(), Code::Aborted);
    delete_at(updated.revision).await.unwrap();
    assert_eq!(templates.records.get(&updated.id).await.unwrap(), None);
}

#[tokio::test]
async fn wrong_requests_are_refused_with_the_field() {
    let templates = templates();
    let created =
        super::create(&templates, Request::new(pb::CreateTemplateRequest::default())).await;
    let unnamed =
        pb::CreateTemplateRequest { template: Some(pb::Template::default()), ..Default::default() };
    let unnamed = super::create(&templates, Request::new(unnamed)).await;
    let of_no_id = pb::UpdateTemplateRequest {
        template: Some(pb::Template { id: "x".into(), ..Default::default() }),
        ..Default::default()
    };
    let updated = update(&templates, Request::new(of_no_id)).await;
    let deleted = delete(&templates, Request::new(pb::DeleteTemplateRequest::default())).await;
    let found = get(&templates.records, Request::new(pb::GetTemplateRequest::default())).await;
    for (refused, field) in [
        (created.map(drop), "template"),
        (unnamed.map(drop), "template.name"),
        (updated.map(drop), "template.id"),
        (deleted.map(drop), "id"),
        (found.map(drop), "by"),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(field), "{refused}");
    }
}

#[tokio::test]
async fn lists_have_the_objects_that_pass_all_filters_and_that_the_caller_sees() {
    let templates = templates();
    for (name, tenant) in [("a", ""), ("b", "acme"), ("c", "other")] {
        create(&templates, template(name, tenant)).await;
    }
    let all = pb::ListTemplatesRequest::default();
    let of_tenant = pb::ListTemplatesRequest { tenant: "acme".into(), ..Default::default() };
    let named = pb::ListTemplatesRequest { name: "c".into(), ..Default::default() };
    let in_r1 = pb::ListTemplatesRequest { labels: racks("r1"), ..Default::default() };
    let in_r2 = pb::ListTemplatesRequest { labels: racks("r2"), ..Default::default() };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names.concat()
    };
    for (request, of_site, of_tenant) in [
        (all, "abc", "ab"),
        (of_tenant, "b", "b"),
        (named, "c", ""),
        // Its labels are not shown to a caller with a tenant, which learns nothing of them.
        (in_r1, "abc", ""),
        (in_r2, "", ""),
    ] {
        assert_eq!(sorted(names(&templates, Request::new(request.clone())).await), of_site);
        assert_eq!(sorted(names(&templates, of_acme(request)).await), of_tenant);
    }
    let b = templates.records.require_by("template-name", "b").await.unwrap();
    let by = pb::get_template_request::By::Name("c".into());
    let request = pb::GetTemplateRequest { by: Some(by) };
    let missing = get(&templates.records, of_acme(request)).await.unwrap_err();
    assert_eq!(missing.message(), "template c not found");
    let by = pb::get_template_request::By::Id(b.id);
    let request = pb::GetTemplateRequest { by: Some(by) };
    let found = get(&templates.records, of_acme(request)).await.unwrap().into_inner();
    assert_eq!(found.template.unwrap().labels, Labels::new());
}

/// Returns the next event of a watch: + for an object, - for a deletion, . for the end of those that
/// exist.
async fn next(events: &mut Events<pb::WatchTemplatesResponse>) -> String {
    match events.next().await.unwrap().unwrap().into_event().unwrap() {
        WatchEvent::Put(template) => format!("+{}", template.name),
        WatchEvent::Deleted(_) => "-".into(),
        WatchEvent::Synced => ".".into(),
    }
}

#[tokio::test]
async fn a_watch_sends_what_begins_to_pass_its_filter_and_deletes_what_ends_to_pass() {
    let templates = templates();
    let (mirror, stop) = (Mirror::new(templates.records.clone()), CancellationToken::new());
    let (running, until) = (mirror.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    let inside = create(&templates, template("in", "")).await;
    let outside = create(&templates, pb::Template { labels: racks("r2"), ..template("out", "") });
    let outside = outside.await;
    let request = pb::WatchTemplatesRequest { labels: racks("r1"), ..Default::default() };
    let mut events = watch(&mirror, &stop, Request::new(request)).unwrap().into_inner();
    assert_eq!(next(&mut events).await, "+in");
    assert_eq!(next(&mut events).await, ".");
    let moved = |template: &pb::Template, rack: &str| pb::Template {
        labels: racks(rack),
        revision: 0,
        ..template.clone()
    };
    let paths = ["labels".to_owned()];
    templates.update(moved(&outside, "r3"), &paths).await.unwrap();
    templates.update(moved(&inside, "r2"), &paths).await.unwrap();
    assert_eq!(next(&mut events).await, "-");
    templates.update(moved(&outside, "r1"), &paths).await.unwrap();
    assert_eq!(next(&mut events).await, "+out");
    stop.cancel();
}
