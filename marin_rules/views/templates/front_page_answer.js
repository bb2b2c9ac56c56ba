if (!window.answersPages) {
    window.answersPages = true;
    // Beside Snakemake's menu a narrow window has no room for a page.
    const isNarrow = () => window.innerWidth < 700;
    window.addEventListener("message", function (event) {
        const path = event.data && event.data.openPage;
        if (typeof path === "string" && Object.hasOwn(results, path)) {
            // Without `hideNavbar` a menu that the reader has closed would come back.
            const hideNavbar = app.state.hideNavbar || isNarrow();
            app.setView({ content: "html", contentPath: results[path].data_uri, resultPath: path, hideNavbar });
        }
    });
    if (isNarrow()) { app.setView({ hideNavbar: true }); }
}
