if (!window.answersPages) {
    window.answersPages = true;
    window.addEventListener("message", function (event) {
        const path = event.data && event.data.openPage;
        if (typeof path === "string" && Object.hasOwn(results, path)) {
            app.setView({ content: "html", contentPath: results[path].data_uri, resultPath: path });
        }
    });
}
