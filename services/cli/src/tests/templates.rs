//! Templates: the commands that every resource has.

use std::sync::atomic::{AtomicUsize, Ordering};

use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::template_service_server::{TemplateService, TemplateServiceServer};
use tokio_stream::Iter;
use tonic::transport::server::Router;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use super::{fake, tinwright, with_server};
use crate::follow;

const ID: &str = "5d1c2a4e-8f3b-4c77-9a61-0b2f6e7d1a10";

/// Two templates on two pages. A created template is returned unchanged. Only `wipe` is found by name. Each watch ends at once: in the
/// second `debian` has changed, in the third `wipe` is gone, and the fourth is refused.
#[derive(Default)]
struct Templates {
    watches: AtomicUsize,
}

fn named(name: &str) -> pb::Template {
    pb::Template {
        id: ID.into(),
        name: name.into(),
        data: "tasks: []\n".into(),
        ..Default::default()
    }
}

fake! {
    impl TemplateService for Templates {
        type WatchTemplatesStream = Iter<std::vec::IntoIter<Result<pb::WatchTemplatesResponse, Status>>>;

        async fn watch_templates(
            &self,
            _: Request<pb::WatchTemplatesRequest>,
        ) -> Result<Response<Self::WatchTemplatesStream>, Status> {
            let template = |id: &str, name| WatchEvent::Put(pb::Template { id: id.into(), ..named(name) });
            let (wipe, debian) = (template(ID, "wipe"), |name| template("other", name));
            let events = match self.watches.fetch_add(1, Ordering::Relaxed) {
                0 => vec![wipe, debian("debian"), WatchEvent::Deleted("gone".into()), WatchEvent::Synced],
                1 => vec![wipe, debian("bookworm"), WatchEvent::Synced],
                2 => vec![debian("bookworm"), WatchEvent::Synced],
                _ => return Err(Status::permission_denied("no fourth watch")),
            };
            let responses: Vec<_> = events.into_iter().map(|event| Ok(event.into())).collect();
            Ok(Response::new(tokio_stream::iter(responses)))
        }

        async fn list_templates(
            &self,
            request: Request<pb::ListTemplatesRequest>,
        ) -> Result<Response<pb::ListTemplatesResponse>, Status> {
            let (name, next) = match request.into_inner().page_token.as_str() {
                "" => ("wipe", "after-wipe"),
                "after-wipe" => ("debian", ""),
                other => return Err(Status::invalid_argument(other)),
            };
            Ok(Response::new(pb::ListTemplatesResponse {
                templates: vec![named(name)],
                next_page_token: next.into(),
            }))
        }

        async fn create_template(
            &self,
            request: Request<pb::CreateTemplateRequest>,
        ) -> Result<Response<pb::CreateTemplateResponse>, Status> {
            let template = request.into_inner().template;
            Ok(Response::new(pb::CreateTemplateResponse { template }))
        }

        async fn get_template(
            &self,
            request: Request<pb::GetTemplateRequest>,
        ) -> Result<Response<pb::GetTemplateResponse>, Status> {
            match request.into_inner().by {
                Some(pb::get_template_request::By::Name(name)) if name == "wipe" => {
                    Ok(Response::new(pb::GetTemplateResponse { template: Some(named("wipe")) }))
                }
                other => Err(Status::not_found(format!("no template {other:?}"))),
            }
        }

        async fn delete_template(
            &self,
            request: Request<pb::DeleteTemplateRequest>,
        ) -> Result<Response<pb::DeleteTemplateResponse>, Status> {
            let request = request.into_inner();
            assert_eq!(request.id, ID);
            match request.force {
                true => Err(Status::failed_precondition("forced")),
                false => Ok(Response::new(pb::DeleteTemplateResponse {})),
            }
        }

        async fn render_template(
            &self,
            request: Request<pb::RenderTemplateRequest>,
        ) -> Result<Response<pb::RenderTemplateResponse>, Status> {
            let rendered = format!("{:?}", request.into_inner());
            Ok(Response::new(pb::RenderTemplateResponse { rendered, ..Default::default() }))
        }
    }
    refuses {
        update_template: UpdateTemplateRequest => UpdateTemplateResponse,
    }
}

fn server() -> Router {
    Server::builder().add_service(TemplateServiceServer::new(Templates::default()))
}

#[tokio::test]
async fn a_list_has_the_objects_of_every_page() {
    let (printed, result) = tinwright("template list", server()).await;
    let lines: Vec<_> = printed.lines().map(str::trim_end).collect();
    let row = |name: &str| format!("{}  {name}", &ID[..13]);
    assert_eq!(lines[1..], [row("wipe"), row("debian")]);
    assert_eq!((lines[0].split_whitespace().nth(1), result), (Some("NAME"), Ok(())));
}

#[tokio::test]
async fn a_watch_prints_one_event_per_line_and_after_a_disconnect_what_has_changed() {
    let (printed, result) = tinwright("template watch", server()).await;
    let put = |id: &str, name: &str| {
        format!(
            r#"{{"event":"put","object":{{"id":"{id}","name":"{name}","data":"tasks: []\n"}}}}"#
        )
    };
    let deleted = |id: &str| format!(r#"{{"event":"deleted","object":{{"id":"{id}"}}}}"#);
    let wanted = [
        put(ID, "wipe"),
        put("other", "debian"),
        deleted("gone"),
        r#"{"event":"synced","object":null}"#.to_owned(),
        put("other", "bookworm"),
        deleted(ID),
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), wanted);
    assert!(result.unwrap_err().starts_with("no fourth watch"));
}

#[tokio::test]
async fn a_file_is_the_template_itself() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "tasks:\n{{ range .X }}\n{{ end }}\n").unwrap();
    let path = file.path().display();
    let (printed, _) = tinwright(&format!("template create -o json -f {path}"), server()).await;
    let made: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        made,
        serde_json::json!([{"kind": "Template", "data": "tasks:\n{{ range .X }}\n{{ end }}\n"}])
    );
}

#[tokio::test]
async fn people_get_the_yaml_and_programs_the_message() {
    let (people, _) = tinwright("template get wipe", server()).await;
    assert_eq!(people, "tasks: []\n");
    let (programs, _) = tinwright("template get wipe -o json", server()).await;
    let object: serde_json::Value = serde_json::from_str(&programs).unwrap();
    assert_eq!(object["name"], "wipe");
}

#[tokio::test]
async fn a_deleted_object_is_named_as_in_the_list() {
    let (printed, result) = tinwright("template delete wipe", server()).await;
    assert_eq!((printed, result), ("template wipe deleted\n".to_owned(), Ok(())));
    let (printed, result) = tinwright("template delete wipe debian", server()).await;
    assert_eq!(printed, "", "all are found before one is deleted");
    let missing = "no template Some(Name(\"debian\"))";
    assert_eq!(result, Err(format!("{missing}\n1 of 2 objects failed")));
}

#[tokio::test]
async fn an_object_that_is_missing_at_the_beginning_of_a_watch_is_gone() {
    let gone = with_server(server(), async |url| {
        let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap().into();
        let is_gone = |template: Option<pb::Template>| Some(Ok(template.is_none()));
        follow::until(&channel, "another", is_gone).await.unwrap()
    });
    assert!(gone.await);
}

#[tokio::test]
async fn a_template_in_use_is_deleted_with_force() {
    let (_, result) = tinwright("template delete wipe --force", server()).await;
    assert!(result.unwrap_err().contains("forced"));
}

#[tokio::test]
async fn a_template_is_rendered_from_a_file_or_by_its_name() {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::io::Write::write_all(&mut file, b"name: a\ntasks: [\"{{ .x }}\"]\n").unwrap();
    let path = file.path().display();
    let machine = "--hardware 0193a6c5-0000-7000-8000-000000000001 --value x=1";
    let (printed, result) =
        tinwright(&format!("template render -f {path} {machine}"), server()).await;
    assert_eq!(result, Ok(()));
    assert!(printed.contains("TemplateData") && printed.contains("0193a6c5"), "{printed}");
    let (printed, _) = tinwright(&format!("template render wipe {machine}"), server()).await;
    assert!(printed.contains(&format!("TemplateId({ID:?})")), "{printed}");
}

#[tokio::test]
async fn a_name_on_the_command_line_replaces_that_in_the_file() {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::io::Write::write_all(&mut file, b"name: a\ntasks: []\n").unwrap();
    let path = file.path().display();
    let (printed, _) =
        tinwright(&format!("template create --name b -o json -f {path}"), server()).await;
    let made: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(made[0]["name"], "b");
    let command = format!("template create --name b -f {path} -f {path}");
    let (_, result) = tinwright(&command, server()).await;
    assert_eq!(result.unwrap_err(), "--name is for one template, and the files have 2");
}

#[tokio::test]
async fn each_file_that_cannot_be_read_is_reported_also_with_a_name_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (first, second) = (path("first.yaml", "name: ["), path("second.yaml", "tasks: {"));
    let right = path("right.yaml", "name: a\ntasks: []\n");
    let command = format!("template create --name b -f {first} -f {right} -f {second}");
    let (printed, result) = tinwright(&command, server()).await;
    let errors = result.unwrap_err();
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!((printed.as_str(), lines.len()), ("", 3), "{errors}");
    assert!(lines[0].starts_with(&format!("{first}:1: not YAML: ")), "{errors}");
    assert!(lines[1].starts_with(&format!("{second}:1: not YAML: ")), "{errors}");
    assert_eq!(lines[2], "nothing was sent: 2 of 3 objects failed");
    let machine = path("machine.yaml", "kind: Hardware\nname: a\n");
    let (_, result) = tinwright(&format!("template create --name b -f {machine}"), server()).await;
    let error = result.unwrap_err();
    assert!(error.contains("it is of kind Hardware, not Template"), "{error}");
}
