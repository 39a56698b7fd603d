// Shows the document that the page names.
"use strict";

addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("document");
  SwaggerUIBundle({
    domNode: place,
    url: place.dataset.url,
    deepLinking: true,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    // Nothing is sent to others.
    validatorUrl: null,
    queryConfigEnabled: false,
  });
});
