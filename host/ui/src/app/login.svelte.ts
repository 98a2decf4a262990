// Whether the host requires a login. Its login page is at the address of the page itself.

import { onUnauthorized } from "../api/http";

class Login {
  /** The message of the host on why a login is necessary. */
  message = $state<string>();

  constructor() {
    onUnauthorized((message) => (this.message = message));
  }
}

export const login = new Login();
