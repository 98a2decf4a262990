//! Tools, agents and prompts that ask the client, in both eras of the protocol.
#![expect(deprecated, reason = "revision 2026-07-28 deprecates sampling and roots")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hatchery_core::{
    CallContext, Content, FunctionDeclaration, InputRequest, InputResponse, JsonMap, LlmRequest, Tool, ToolError,
};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_test_support::{llm_on, tool, tool_with_confirmation};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorData, Implementation, ListRootsResult, ProtocolVersion, Role, Root, RootsCapabilities,
    SamplingCapability, SamplingMessage, SamplingMessageContentBlock,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RequestContext, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};

use crate::server::{Host, http_client, serve};

/// A person at a client with a model and one folder. Gives the same answer to every question.
#[derive(Clone)]
pub struct Person {
    answer: Option<ElicitResult>,
    questions: Arc<Mutex<Vec<Value>>>,
}

impl Person {
    /// Accepts with these fields.
    pub fn accepting(fields: Value) -> Self {
        Self::answering(ElicitResult::new(ElicitationAction::Accept).with_content(fields))
    }

    fn answering(answer: ElicitResult) -> Self {
        Self { answer: Some(answer), questions: Arc::default() }
    }

    /// A client that supports no input.
    pub fn absent() -> Self {
        Self { answer: None, questions: Arc::default() }
    }

    pub fn questions(&self) -> Vec<Value> {
        self.questions.lock().unwrap().clone()
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.answer.is_some() {
            capabilities.elicitation = Some(ElicitationCapability::new());
            capabilities.sampling = Some(SamplingCapability::default());
            capabilities.roots = Some(RootsCapabilities::default());
        }
        let config = ClientConfig::new(capabilities, Implementation::new("test", "1"));
        config.with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.questions.lock().unwrap().push(json!(request));
        Ok(self.answer.clone().unwrap())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.questions.lock().unwrap().push(json!(params));
        let message = SamplingMessage::new(Role::Assistant, SamplingMessageContentBlock::text("Roses are red."));
        Ok(CreateMessageResult::new(message, "poet".into()))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///notes").with_name("Notes")]))
    }
}

pub type PersonClient = RunningService<RoleClient, Person>;

/// Returns clients of both eras.
pub async fn clients(host: &Host, person: &Person) -> [PersonClient; 2] {
    let (url, _) = serve(host.service(&["*"], &["*"])).await;
    let transport = || {
        let config = StreamableHttpClientTransportConfig::with_uri(url.clone());
        StreamableHttpClientTransport::with_client(http_client(), config)
    };
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    [
        person.clone().serve_with_lifecycle(transport(), ClientLifecycleMode::Initialize).await.unwrap(),
        person.clone().serve_with_lifecycle(transport(), modern).await.unwrap(),
    ]
}

fn params(name: &str, args: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name.to_owned()).with_arguments(args.as_object().unwrap().clone())
}

async fn call(client: &PersonClient, name: &str, args: Value) -> Result<CallToolResult, ServiceError> {
    client.call_tool(params(name, args)).await
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// Asks a person for a seat, as a confirmation with a form.
struct SeatTool(Arc<FunctionDeclaration>, Value);

impl SeatTool {
    /// Creates a tool whose confirmations have this payload.
    fn create(name: &str, payload: Value) -> Arc<dyn Tool> {
        Arc::new(Self(tool(name, |_, _| Ok(Value::Null)).declaration().clone(), payload))
    }
}

#[async_trait::async_trait]
impl Tool for SeatTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        match cx.confirmation() {
            Some(decision) if decision.confirmed => Ok(json!({"booked": decision.payload})),
            Some(_) => Ok(json!({"booked": null})),
            None => {
                let requested = cx.request_confirmation("Which seat?", Some(self.1.clone()));
                requested.map_err(|error| ToolError::Recoverable(error.to_string()))?;
                Ok(json!({"status": "waiting"}))
            }
        }
    }
}

/// Asks for everything that a client can be asked for.
struct InputRequestingTool(Arc<FunctionDeclaration>);

#[async_trait::async_trait]
impl Tool for InputRequestingTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}});
        let poem = LlmRequest {
            contents: [Arc::new(Content::user("A poem, please."))].into_iter().collect(),
            system_instructions: vec!["Rhyme.".into()],
            ..LlmRequest::default()
        };
        let requests = BTreeMap::from([
            ("form".to_owned(), InputRequest::Form { message: "Which seat?".into(), schema }),
            ("poem".to_owned(), InputRequest::Message(Box::new(poem))),
            ("roots".to_owned(), InputRequest::Roots),
        ]);
        let mut responses = cx.request_input(requests).await?;
        let (Some(InputResponse::Form(form)), Some(InputResponse::Message(poem)), Some(InputResponse::Roots(roots))) =
            (responses.remove("form"), responses.remove("poem"), responses.remove("roots"))
        else {
            return Err(ToolError::Recoverable("a response is of another kind".into()));
        };
        Ok(json!({"form": form, "poem": poem.text(), "roots": roots.iter().map(|root| &root.uri).collect::<Vec<_>>()}))
    }
}

/// Asks the person eight times, and accepts every answer.
struct QuizTool(Arc<FunctionDeclaration>, AtomicUsize);

#[async_trait::async_trait]
impl Tool for QuizTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let asked = self.1.fetch_add(1, Ordering::Relaxed);
        if asked == 8 {
            return Ok(json!("passed"));
        }
        let requested = cx.request_confirmation(format!("Question {asked}?"), None);
        requested.map_err(|error| ToolError::Recoverable(error.to_string()))?;
        Ok(json!({"status": "waiting"}))
    }
}

fn host() -> Host {
    let host = Host::new(vec![]);
    let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]});
    host.add_tool("air/seat", SeatTool::create("seat", json!({"requestedSchema": schema})));
    host.add_tool("air/upgrade", SeatTool::create("upgrade", json!({"seat": "1A", "price": 90})));
    let declaration = tool("curious", |_, _| Ok(Value::Null)).declaration().clone();
    host.add_tool("air/curious", Arc::new(InputRequestingTool(declaration)));
    host
}

#[tokio::test]
async fn the_person_at_a_client_confirms_a_call() {
    let person = Person::accepting(json!({}));
    for client in clients(&host(), &person).await {
        let paid = call(&client, "bank_pay", json!({})).await.unwrap();
        assert_eq!((paid.is_error, text(&paid)), (Some(false), "paid"));
        let question = person.questions.lock().unwrap().pop().unwrap();
        assert_eq!(question["message"], "Allow the call of `pay` with {}?");
        assert_eq!(question["requestedSchema"], json!({"type": "object", "properties": {}}));
    }
    for action in [ElicitationAction::Decline, ElicitationAction::Cancel] {
        for client in clients(&host(), &Person::answering(ElicitResult::new(action.clone()))).await {
            let refused = call(&client, "bank_pay", json!({})).await.unwrap();
            assert_eq!((refused.is_error, text(&refused)), (Some(true), "This tool call is rejected."));
        }
    }
}

#[tokio::test]
async fn a_call_that_needs_a_person_fails_if_the_client_cannot_ask_one() {
    let [earlier, modern] = clients(&host(), &Person::absent()).await;
    let refused = call(&earlier, "bank_pay", json!({})).await.unwrap();
    let expected =
        "the call needs the answer of a person, and this client cannot ask one: it does not support elicitation";
    assert_eq!((refused.is_error, text(&refused)), (Some(true), expected));
    let refused = call(&earlier, "air_curious", json!({})).await.unwrap();
    let expected = "the client of this run cannot be asked for answers of a person";
    assert_eq!((refused.is_error, text(&refused)), (Some(true), expected));
    for name in ["bank_pay", "air_curious"] {
        let error = call(&modern, name, json!({})).await.unwrap_err();
        let ServiceError::McpError(error) = error else { panic!("{error}") };
        assert_eq!(error.code.0, -32021);
        assert_eq!(error.data.unwrap()["requiredCapabilities"], json!({"elicitation": {"form": {}}}));
    }
}

#[tokio::test]
async fn a_form_of_a_confirmation_is_a_form_at_the_client() {
    let person = Person::accepting(json!({"seat": "7A"}));
    for client in clients(&host(), &person).await {
        let booked = call(&client, "air_seat", json!({})).await.unwrap();
        assert_eq!(booked.structured_content, Some(json!({"booked": {"seat": "7A"}})));
        let question = person.questions.lock().unwrap().pop().unwrap();
        assert_eq!(
            (&question["message"], &question["requestedSchema"]["required"]),
            (&json!("Which seat?"), &json!(["seat"]))
        );
    }
}

#[tokio::test]
async fn the_proposal_of_a_confirmation_is_a_form_with_its_values() {
    let person = Person::accepting(json!({"price": 60}));
    for client in clients(&host(), &person).await {
        let booked = call(&client, "air_upgrade", json!({})).await.unwrap();
        assert_eq!(booked.structured_content, Some(json!({"booked": {"seat": "1A", "price": 60}})));
        let fields = person.questions.lock().unwrap().pop().unwrap()["requestedSchema"]["properties"].clone();
        let expected =
            json!({"seat": {"type": "string", "default": "1A"}, "price": {"type": "integer", "default": 90}});
        assert_eq!(fields, expected);
    }
}

#[tokio::test]
async fn a_tool_asks_the_person_the_model_and_for_the_folders_of_a_client() {
    let person = Person::accepting(json!({"seat": "7A"}));
    for client in clients(&host(), &person).await {
        let result = call(&client, "air_curious", json!({})).await.unwrap();
        let expected = json!({"form": {"seat": "7A"}, "poem": "Roses are red.", "roots": ["file:///notes"]});
        assert_eq!(result.structured_content, Some(expected));
        let poem = person.questions().into_iter().find(|question| question.get("systemPrompt").is_some()).unwrap();
        assert_eq!((&poem["systemPrompt"], &poem["maxTokens"]), (&json!("Rhyme."), &json!(1024)));
        assert_eq!(poem["messages"][0]["content"]["text"], "A poem, please.");
        person.questions.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn an_agent_that_waits_for_a_person_continues_in_the_same_call() {
    let agent = || {
        let model = Arc::new(Scripted::sequence([
            Reply::call("pay", json!({})),
            Reply::from("Please confirm."),
            Reply::from("It is paid."),
        ]));
        let pay = tool_with_confirmation("pay", |_, _| Ok(json!("paid")));
        llm_on("clerk", &model, |llm| llm.tools.push(pay))
    };
    for index in [0, 1] {
        let person = Person::accepting(json!({}));
        let client = &clients(&Host::new(vec![agent()]), &person).await[index];
        let answer = call(client, "run_clerk", json!({"message": "Pay!"})).await.unwrap();
        assert_eq!(text(&answer), "It is paid.");
        assert_eq!(answer.structured_content.unwrap().get("waiting_for"), None);
        assert_eq!(person.questions()[0]["message"], "Allow the call of `pay` with {}?");
        let client = &clients(&Host::new(vec![agent()]), &Person::absent()).await[index];
        let answer = call(client, "run_clerk", json!({"message": "Pay!"})).await.unwrap();
        assert!(text(&answer).starts_with("Please confirm.\n\nThe agent waits for an answer to"), "{answer:?}");
        let waiting = answer.structured_content.unwrap()["waiting_for"].clone();
        assert_eq!(waiting[0]["name"], "adk_request_confirmation");
    }
}

#[tokio::test]
async fn all_eight_answers_of_a_person_are_used() {
    let questions = (0..8).flat_map(|_| [Reply::call("pay", json!({})), Reply::from("Please confirm.")]);
    let model = Arc::new(Scripted::sequence(questions.chain([Reply::from("It is paid.")])));
    let pay = tool_with_confirmation("pay", |_, _| Ok(json!("paid")));
    let host = Host::new(vec![llm_on("clerk", &model, |llm| llm.tools.push(pay))]);
    let declaration = tool("quiz", |_, _| Ok(Value::Null)).declaration().clone();
    host.add_tool("air/quiz", Arc::new(QuizTool(declaration, AtomicUsize::new(0))));
    let person = Person::accepting(json!({}));
    let [client, _] = clients(&host, &person).await;
    let answer = call(&client, "run_clerk", json!({"message": "Pay!"})).await.unwrap();
    assert_eq!((text(&answer), person.questions().len()), ("It is paid.", 8));
    let passed = call(&client, "air_quiz", json!({})).await.unwrap();
    assert_eq!((passed.is_error, text(&passed), person.questions().len()), (Some(false), "passed", 16));
}

#[tokio::test]
async fn a_changed_state_of_a_call_is_refused() {
    let [_, client] = clients(&host(), &Person::accepting(json!({}))).await;
    let request = params("bank_pay", json!({}));
    let CallToolResponse::InputRequired(required) = client.call_tool_once(request.clone()).await.unwrap() else {
        panic!("the call needs no input");
    };
    let key = required.input_requests.unwrap().into_keys().next().unwrap();
    let state = required.request_state.unwrap();
    let retry = |state: String, response: Value| {
        let mut request = request.clone();
        (request.input_responses, request.request_state) = (Some([(key.clone(), response)].into()), Some(state));
        client.call_tool_once(request)
    };
    let changed = retry(format!("{state}x"), json!({"action": "accept"})).await.unwrap_err();
    let ServiceError::McpError(changed) = changed else { panic!("{changed}") };
    assert_eq!(changed.code.0, -32602);
    assert_eq!(changed.message, "`requestState` does not belong to this call; omit it to start the call again");
    let invalid = retry(state.clone(), json!(5)).await.unwrap();
    assert!(matches!(invalid, CallToolResponse::InputRequired(_)), "{invalid:?}");
    let CallToolResponse::Complete(paid) = retry(state, json!({"action": "accept"})).await.unwrap() else {
        panic!("the call is not complete");
    };
    assert_eq!(text(&paid), "paid");
}
