use super::*;
use actix_web::App;
use actix_web::test::{TestRequest, call_service, init_service};
use serde_json::json;

#[test]
fn a_change_needs_a_name_and_a_reason() {
    let named = |name: &str| operator_of(&TestRequest::default().insert_header(("x-operator-id", name)).to_http_request());
    assert_eq!(named(" anna ").unwrap(), "anna");
    assert!(named(" ").is_err() && operator_of(&TestRequest::default().to_http_request()).is_err());

    assert_eq!(jobs::cancel::reason(&json!({ "reason": " asked by the client " })).unwrap(), "asked by the client");
    for body in [json!({}), json!({ "reason": "" }), json!({ "reason": 1 }), json!([]), json!({ "reason": "x", "dry_run": true })] {
        assert_eq!(jobs::cancel::reason(&body).unwrap_err().kind(), Kind::InvalidRequest, "{body}");
    }
}

#[test]
fn each_path_stands_once() {
    let mut paths: Vec<_> = ROUTES.iter().map(|(_, path, _)| *path).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), ROUTES.len());
}

#[actix_web::test]
async fn every_route_is_there_and_says_that_the_service_is_starting() {
    let app = init_service(App::new().configure(|to| configure(to, Late::default()))).await;
    for (method, path, _) in ROUTES {
        let request = TestRequest::with_uri(&path.replace("{id}", "x").replace("{signer}", "x"))
            .method(method.clone())
            .insert_header(("x-operator-id", "anna"))
            .set_json(json!({ "reason": "x" }));
        assert_eq!(call_service(&app, request.to_request()).await.status(), 503, "{method} {path}");
    }
    for bare in [TestRequest::post(), TestRequest::post().insert_header(("x-operator-id", "anna"))] {
        let told = call_service(&app, bare.uri("/jobs/x/cancel").to_request()).await;
        assert_eq!(told.status(), 400);
        let body = String::from_utf8(actix_web::test::read_body(told).await.to_vec()).unwrap();
        assert!(body.contains("X-Operator-Id") && body.contains("reason"), "{body}");
    }
    let nobody = call_service(&app, TestRequest::post().uri("/jobs/x/cancel").set_json(json!({ "reason": "x" })).to_request()).await;
    let body = String::from_utf8(actix_web::test::read_body(nobody).await.to_vec()).unwrap();
    assert!(body.contains("X-Operator-Id is missing"), "{body}");
    let wrong = call_service(&app, TestRequest::delete().uri("/overview").to_request()).await;
    assert_eq!((wrong.status().as_u16(), wrong.headers().get("allow").unwrap().as_bytes()), (405, b"GET, HEAD".as_slice()));
}
