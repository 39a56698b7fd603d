//! The objects of a tenant that other services own: while there are any, the tenant is not deleted.

use std::fmt;

use runtime::Channel;
use tinwright::TenantName;
use tinwright::address::v1::grant_service_client::GrantServiceClient;
use tinwright::address::v1::{GrantState, ListGrantsRequest};
use tinwright::image::v1::ListImagesRequest;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tinwright::instance::v1::ListInstancesRequest;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::workflow::v1::ListTemplatesRequest;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tonic::{Response, Status};

use crate::Error;

/// Objects of one response.
const PAGE_OBJECTS: i32 = 200;
/// Objects that are counted: a tenant with more is as little deleted.
const MAX_COUNTED: usize = 1000;
/// Objects that an error names.
const MAX_NAMED: usize = 3;

/// Clients of the services that own objects of tenants.
#[derive(Clone, Debug)]
pub struct TenantObjects {
    instance: InstanceServiceClient<Channel>,
    template: TemplateServiceClient<Channel>,
    grant: GrantServiceClient<Channel>,
    /// None: the site has no images.
    image: Option<ImageServiceClient<Channel>>,
}

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCount {
    /// Such as "instance".
    pub noun: &'static str,
    /// The ids of the first ones.
    pub first: Vec<String>,
    /// The number of all.
    pub count: usize,
    /// True if there are more than were counted.
    pub has_more: bool,
}

impl TenantObjects {
    /// Clients for the channels `instance`, `workflow` and `address`.
    pub fn new(instance: Channel, workflow: Channel, address: Channel) -> Self {
        Self {
            instance: InstanceServiceClient::new(instance),
            template: TemplateServiceClient::new(workflow),
            grant: GrantServiceClient::new(address),
            image: None,
        }
    }

    /// Also looks at the images of the service behind `image`, if the site has one.
    pub fn with_images(self, image: Option<Channel>) -> Self {
        Self { image: image.map(ImageServiceClient::new), ..self }
    }

    /// Returns the objects of `tenant`, by kind.
    pub async fn of(&self, tenant: &TenantName) -> Result<Vec<ObjectCount>, Error> {
        let all = [
            self.instances(tenant).await?,
            self.templates(tenant).await?,
            self.images(tenant).await?,
            self.grants(tenant, GrantState::Pending, "pending grant").await?,
            self.grants(tenant, GrantState::Active, "grant").await?,
        ];
        Ok(all.into_iter().filter(|it| it.count > 0).collect())
    }

    async fn instances(&self, tenant: &TenantName) -> Result<ObjectCount, Error> {
        let (mut found, mut page_token) = (ObjectCount::new("instance"), String::new());
        let mut client = self.instance.clone();
        while !found.is_complete() {
            let (page_size, tenant) = (PAGE_OBJECTS, tenant.to_string());
            let request =
                ListInstancesRequest { page_size, page_token, tenant, ..Default::default() };
            let page = response("instance", client.list_instances(request)).await?;
            page_token = page.next_page_token;
            found.add(page.instances.into_iter().map(|it| it.id), !page_token.is_empty());
        }
        Ok(found)
    }

    async fn templates(&self, tenant: &TenantName) -> Result<ObjectCount, Error> {
        let (mut found, mut page_token) = (ObjectCount::new("template"), String::new());
        let mut client = self.template.clone();
        while !found.is_complete() {
            let (page_size, tenant) = (PAGE_OBJECTS, tenant.to_string());
            let request =
                ListTemplatesRequest { page_size, page_token, tenant, ..Default::default() };
            let page = response("workflow", client.list_templates(request)).await?;
            page_token = page.next_page_token;
            found.add(page.templates.into_iter().map(|it| it.id), !page_token.is_empty());
        }
        Ok(found)
    }

    async fn images(&self, tenant: &TenantName) -> Result<ObjectCount, Error> {
        let (mut found, mut page_token) = (ObjectCount::new("image"), String::new());
        let Some(mut client) = self.image.clone() else { return Ok(found) };
        while !found.is_complete() {
            let (page_size, tenant) = (PAGE_OBJECTS, tenant.to_string());
            let request = ListImagesRequest { page_size, page_token, tenant, ..Default::default() };
            let page = response("image", client.list_images(request)).await?;
            page_token = page.next_page_token;
            found.add(page.images.into_iter().map(|it| it.id), !page_token.is_empty());
        }
        Ok(found)
    }

    /// Returns the grants in `state`. Those that are released hold nothing of the tenant.
    async fn grants(
        &self,
        tenant: &TenantName,
        state: GrantState,
        noun: &'static str,
    ) -> Result<ObjectCount, Error> {
        let (mut found, mut page_token) = (ObjectCount::new(noun), String::new());
        let mut client = self.grant.clone();
        while !found.is_complete() {
            let (page_size, tenant, state) = (PAGE_OBJECTS, tenant.to_string(), state.into());
            let request =
                ListGrantsRequest { page_size, page_token, tenant, state, ..Default::default() };
            let page = response("address", client.list_grants(request)).await?;
            page_token = page.next_page_token;
            found.add(page.grants.into_iter().map(|it| it.id), !page_token.is_empty());
        }
        Ok(found)
    }
}

impl ObjectCount {
    /// No object of this kind yet, of which there may be some.
    pub fn new(noun: &'static str) -> Self {
        Self { noun, first: Vec::new(), count: 0, has_more: true }
    }

    /// Adds the objects `ids`. There may be others if `has_more`.
    pub fn add(&mut self, ids: impl Iterator<Item = String>, has_more: bool) {
        for id in ids {
            self.count += 1;
            if self.first.len() < MAX_NAMED {
                self.first.push(id);
            }
        }
        self.has_more = has_more;
    }

    /// True if all objects were counted, or as many as are counted.
    fn is_complete(&self) -> bool {
        !self.has_more || self.count >= MAX_COUNTED
    }
}

impl fmt::Display for ObjectCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { noun, first, count, has_more } = self;
        let more_than = if *has_more { "more than " } else { "" };
        let plural = if *count == 1 { "" } else { "s" };
        let others = if *count > first.len() { ", …" } else { "" };
        write!(f, "{more_than}{count} {noun}{plural} ({}{others})", first.join(", "))
    }
}

/// Waits for the response of `service`.
async fn response<T>(
    service: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Error> {
    let response = runtime::response(call).await;
    response.map_err(|status| Error::Unavailable { service, status: Box::new(status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_some_objects_and_counts_all_up_to_a_limit() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let mut found = ObjectCount::new("template");
        assert!(!found.is_complete());
        found.add(ids(&["a"]).into_iter(), false);
        assert_eq!((found.to_string().as_str(), found.is_complete()), ("1 template (a)", true));
        found.add(ids(&["b", "c", "d", "e"]).into_iter(), true);
        assert_eq!(found.to_string(), "more than 5 templates (a, b, c, …)");
        assert!(!found.is_complete());
        found.add(ids(&["x"; 1000]).into_iter(), true);
        assert!(found.is_complete());
    }
}
