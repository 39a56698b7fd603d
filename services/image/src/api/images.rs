//! The calls on images. A caller with a tenant reads that tenant's, the site's and public ones, and
//! changes its own.

use nouns::{Edit as _, Noun as _};
use runtime::access;
use runtime::tenants::IfUnanswered;
use store::records::Selector;
use store::records::requests::IdempotentRequest;
use store::serving;
use tinwright::ImageId;
use tinwright::image::v1 as pb;
use tinwright::image::v1::get_image_request::By;
use tinwright::image::v1::image_service_server::ImageService;
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;
use crate::images::Images;
use crate::owner;

impl ImageService for Api {
    async fn create_image(
        &self,
        request: Request<pb::CreateImageRequest>,
    ) -> Result<Response<pb::CreateImageResponse>, Status> {
        let caller = access::request_scope(&request);
        let tenant = access::tenant(&request).cloned();
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let mut image = Violations::require("image", request.image)?;
        owner::take_tenant(&mut image, tenant.as_ref())?;
        let create = self.clone().create(image, idempotent);
        let image = Some(serving::to_the_end(Box::pin(create)).await?);
        Ok(Response::new(pb::CreateImageResponse { image }))
    }

    async fn get_image(
        &self,
        request: Request<pb::GetImageRequest>,
    ) -> Result<Response<pb::GetImageResponse>, Status> {
        let mut tenant = access::tenant(&request).cloned();
        let pb::GetImageRequest { by, tenant: viewer } = request.into_inner();
        if tenant.is_none() && !viewer.is_empty() {
            tenant = Some(Violations::parse("tenant", &viewer)?);
        }
        let selector = selector(by)?;
        let image = self.images.find(&selector, tenant.as_ref()).await?;
        let image = Some(owner::shown(image, tenant.as_ref()));
        Ok(Response::new(pb::GetImageResponse { image }))
    }

    async fn list_images(
        &self,
        request: Request<pb::ListImagesRequest>,
    ) -> Result<Response<pb::ListImagesResponse>, Status> {
        nouns::list_where(&self.image_mirror, request, |request, image: &pb::Image| {
            request.family.is_empty() || image.family == request.family
        })
        .await
    }

    #[tracing::instrument(skip_all)]
    async fn update_image(
        &self,
        request: Request<pb::UpdateImageRequest>,
    ) -> Result<Response<pb::UpdateImageResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::UpdateImageRequest { image, update_mask } = request.into_inner();
        let mut update = Violations::require("image", image)?;
        let id: ImageId = Violations::parse("image.id", &update.id)?;
        update.id = id.to_string();
        let found = self.images.find(&Selector::Id(id.to_string()), tenant.as_ref()).await?;
        owner::check_owned(&found, tenant.as_ref())?;
        let paths = update_mask.unwrap_or_default().paths;
        let image = self.images.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateImageResponse { image: Some(image) }))
    }

    #[tracing::instrument(skip_all, fields(image.id = request.get_ref().id))]
    async fn delete_image(
        &self,
        request: Request<pb::DeleteImageRequest>,
    ) -> Result<Response<pb::DeleteImageResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::DeleteImageRequest { id, revision } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        let api = self.clone();
        let delete = async move {
            api.images.delete_owned(id, revision, tenant.as_ref()).await?;
            Ok(api.uploads.remove(&id.to_string()).await?)
        };
        serving::to_the_end(Box::pin(delete)).await?;
        Ok(Response::new(pb::DeleteImageResponse {}))
    }

    type WatchImagesStream = serving::Events<pb::WatchImagesResponse>;

    async fn watch_images(
        &self,
        request: Request<pb::WatchImagesRequest>,
    ) -> Result<Response<Self::WatchImagesStream>, Status> {
        nouns::watch(&self.image_mirror, &self.stop, request)
    }

    #[tracing::instrument(skip_all, fields(image.id = request.get_ref().image_id))]
    async fn add_signature(
        &self,
        request: Request<pb::AddSignatureRequest>,
    ) -> Result<Response<pb::AddSignatureResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::AddSignatureRequest { image_id, text } = request.into_inner();
        let id = Violations::parse("image_id", &image_id)?;
        let image = self.images.add_signature(id, &text, tenant.as_ref()).await?;
        Ok(Response::new(pb::AddSignatureResponse { image: Some(image) }))
    }
}

impl Api {
    /// Creates `image`, in the name of a tenant that exists. A repeated `request` returns the first
    /// result.
    async fn create(
        self,
        image: pb::Image,
        request: Option<IdempotentRequest>,
    ) -> Result<pb::Image, Status> {
        let tenant = image.tenant.clone();
        let create = self.images.create(image, request.clone());
        let (images, request) = (self.images.records(), request.as_ref());
        let take_back = |image: pb::Image| async move {
            Ok(images.take_back(&image.id, request, |_| false).await?)
        };
        let if_unanswered = IfUnanswered::TakeBack;
        let created =
            self.tenants.create("image.tenant", &tenant, if_unanswered, create, take_back).await;
        Ok(created?)
    }
}

/// Returns the selector of the image that is named `by` a caller.
fn selector(by: Option<By>) -> Result<Selector, Violations> {
    match by {
        None => Err(Violations::single("by", "is missing: set id or name")),
        Some(By::Id(id)) => {
            let id: ImageId = Violations::parse("id", &id)?;
            Ok(Selector::Id(id.to_string()))
        }
        Some(By::Name(name)) => Images::selector(&name),
    }
}
