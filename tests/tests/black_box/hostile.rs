//! Attacks on a real host that also serves harmless components: none may succeed, the harmless components must answer
//! during and after it, and the host must not use more memory, file handles and disk than before.
//!
//! | attack | test |
//! |---|---|
//! | a granted folder below a written one is swapped for a link, by one component | [`files`]`::a_folder_below_a_written_one_is_not_granted_to_the_same_component` |
//! | the same by two components, and by a link that exists before | `files::a_folder_below_a_written_one_is_not_granted_to_another_component`, `files::a_link_to_a_folder_below_a_written_one_is_detected`, `files::a_granted_folder_that_is_replaced_by_a_link_is_still_the_one_that_was_granted` |
//! | `..`, links, hard links, writes in a folder to read | `files::paths_and_links_cannot_leave_a_granted_folder` |
//! | `inspect`, `doctor`, `test` of another author's folder that grants itself the home folder | [`untrusted_folders`]`::no_command_grants_an_untrusted_folder_the_access_that_it_requests`, `untrusted_folders::serve_names_the_requested_access_and_the_command_that_trusts_it`, `untrusted_folders::describe_has_no_access_to_granted_files` |
//! | `inspect` of an unsigned component where signatures are required | `untrusted_folders::an_unsigned_component_is_not_inspected_if_signatures_are_required` |
//! | a schema of 19 000 numbers and a list of 100 000 | [`compute`]`::slow_validation_of_arguments_blocks_no_other_run` |
//! | schemas of patterns, of loops, and unusable ones | `compute::a_schema_with_slow_patterns_or_loops_blocks_no_other_run`, `compute::an_unusable_schema_accepts_no_arguments` |
//! | bodies that are not sent | [`memory`]`::unsent_request_bodies_do_not_fill_the_memory_of_the_host`, `memory::unsent_request_bodies_do_not_fill_the_memory_despite_a_grant` |
//! | header fields that are not sent | `memory::unsent_header_fields_do_not_fill_the_memory_of_the_host` |
//! | random bytes, handles, memory | `memory::random_bytes_are_limited_per_call`, `memory::handles_that_are_never_closed_end_with_the_call`, `memory::endless_allocation_ends_at_the_memory_limit` |
//! | 300 events of 7 MB; events and pieces without end | [`floods`]`::an_agent_that_emits_two_gigabytes_is_stopped`, `floods::an_agent_that_emits_endless_events_is_stopped`, `floods::an_agent_that_emits_endless_partial_events_is_stopped` |
//! | state and artifacts without end | `floods::an_agent_cannot_fill_the_state`, `floods::a_tool_cannot_fill_the_state`, `floods::artifacts_end_at_a_quota` |
//! | 30 calls of its own tools of 55 MiB at once | `memory::concurrent_calls_of_own_tools_share_the_memory_of_the_run` |
//! | a callback that changes arguments after consent | [`consent`]`::only_the_confirmed_arguments_are_run` |
//! | an imported session with a forged call, request and answer | `consent::an_imported_history_gives_no_consent` |
//! | replayed decisions, unknown ids, an agent as `user`, a request in another agent's name | `consent::a_decision_counts_once_for_one_request_and_for_its_arguments`, `consent::an_agent_of_a_component_cannot_request_confirmation_for_another`, `consent::an_agent_that_poses_as_the_user_is_not_treated_as_the_user` |
//! | `extra` with a call, a state delta, a text, and others | [`history`]`::additional_keys_of_an_event_cannot_forge_it_or_break_the_session`, `history::contradictory_imported_events_are_refused_or_read_as_checked` |
//! | parts that no model takes, from a client | `history::parts_that_no_model_accepts_are_refused_by_the_server` |
//! | a described agent with tools, models, callbacks of others | [`descriptions`]`::an_agent_description_cannot_use_items_of_others` |
//! | placeholders of `user:` and `app:` state and artifacts, `output_key: app:…` | the same |
//! | an event with state or a compaction that is not the agent's | `history::an_agent_cannot_set_state_of_others_or_rewrite_their_history` |
//! | the environment's key to a folder's base URL | [`keys`]`::a_folder_cannot_choose_the_destination_of_a_key` |
//! | spellings of own addresses, headers, methods | [`addresses`]`::no_spelling_of_a_local_address_is_reachable`, `addresses::headers_and_methods_cannot_redirect_a_request`, `addresses::without_a_grant_there_are_no_requests_and_no_sockets` |
//! | Host, Origin, `null`, other ports, text/plain, `Sec-Fetch-Site` | [`clients`]`::a_page_of_another_origin_reaches_nothing` |
//! | traversal and odd names in apps, users, sessions, artifacts | `clients::names_cannot_leave_a_folder_and_are_limited_in_length` |
//! | lines of the log that look like the host's | `floods::logs_and_output_are_limited_and_cannot_imitate_the_host` |
//! | deep, huge and doubled JSON, from clients and from tools | `clients::deep_or_ambiguous_json_is_refused`, `compute::invalid_or_too_deep_json_is_an_error_of_the_tool` |
//! | 1.3 million state keys in one request | `clients::a_million_state_keys_do_not_delay_other_users` |
//! | a body of zeros | `clients::a_body_of_zeros_needs_no_gigabyte` |
//! | clients that send slowly | `clients::slow_clients_do_not_lock_out_others` |
//! | functions that are slow to compile | [`compiling`]`::a_host_serves_other_components_before_a_slow_one_is_compiled` |
//! | a grant that is revoked during a compilation | `compiling::grants_are_revoked_while_a_slow_component_is_compiled` |
//! | a signed component under another name | [`supply_chain`]`::a_signed_component_does_not_serve_under_another_name` |
//! | rollback where signatures are required | `supply_chain::a_rollback_works_if_signatures_are_required` |
//! | a registry whose token service is elsewhere | `supply_chain::a_login_stays_with_its_registry` |
//! | a proxy between the host and a registry on its machine | `supply_chain::the_login_of_a_registry_on_this_machine_does_not_pass_a_proxy` |
//! | a manifest of 300 MiB | `supply_chain::the_size_of_a_manifest_is_limited` |
//! | `json.py` in a project that is built | `supply_chain::a_build_runs_no_module_of_the_project` |
//! | grants of the host's own folders; agents and scripts in a written folder | [`writable_folders`]`::folders_of_the_host_cannot_be_granted`, `writable_folders::agents_and_scripts_in_a_written_folder_are_not_loaded` |
//! | `kill -9` while events stream | [`crash`](crate::crash)`::every_event_sent_before_a_kill_is_stored` |
//! | keys and secrets in logs, `/components`, sessions | `keys::no_component_and_no_client_sees_a_key`, [`network`](crate::network)`::a_secret_is_sent_over_https_and_appears_nowhere` |
//! | `scripted:.env` | `writable_folders::a_script_cannot_read_other_files` |
//! | spinning, recursion, a description that never ends | `compute::spinning_calls_end_at_the_cpu_limit`, `compute::recursive_tools_end_at_the_limits_of_calls_and_depth`, `compute::a_component_that_spins_or_grows_while_it_describes_itself_is_not_loaded` |

mod addresses;
mod clients;
mod compiling;
mod compute;
mod consent;
mod descriptions;
mod files;
mod floods;
mod history;
mod keys;
mod memory;
mod supply_chain;
mod untrusted_folders;
mod writable_folders;
