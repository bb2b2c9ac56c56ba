// The frame is as high as the page in it, so that there is one scroll bar.
const script = parent.document.createElement("script");
script.textContent = document.getElementById("answer").textContent;
parent.document.head.append(script);
const fit = () => { frameElement.style.height = document.documentElement.offsetHeight + 48 + "px"; };
new ResizeObserver(fit).observe(document.body);
